//! Chromium page controlled by the `DevTools` protocol: runs scripts and takes screenshots.

use std::fs;
use std::net::TcpStream;
use std::path::Path;

use brisk_testkit::process::{Process, TIMEOUT, wait_until};
use brisk_testkit::uninterrupted::Uninterrupted;
use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

/// The code of errors that go by the state of the page.
const NOT_NOW: i32 = -32_000;

/// An open page.
pub(crate) struct Page {
    socket: WebSocket<Uninterrupted<TcpStream>>,
    session: String,
    last: u64,
    _browser: Process,
}

impl Page {
    /// A new page of a Chromium that was started with this profile and `--remote-debugging-port=0`.
    pub(crate) fn of(browser: Process, profile: &Path) -> Self {
        let (port, path) = wait_until("the port of Chromium's DevTools", || {
            let text = fs::read_to_string(profile.join("DevToolsActivePort")).ok()?;
            let (port, path) = text.split_once('\n')?;
            Some((port.parse::<u16>().ok()?, path.trim().to_owned())).filter(|(_, path)| !path.is_empty())
        });
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("DevTools");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        let url = format!("ws://127.0.0.1:{port}{path}");
        let (socket, _) = tungstenite::client(url, Uninterrupted(stream)).expect("a WebSocket");
        let mut page = Self { socket, session: String::new(), last: 0, _browser: browser };
        let target = page.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attached = json!({ "targetId": target["targetId"], "flatten": true });
        let session = page.call("Target.attachToTarget", &attached);
        session["sessionId"].as_str().expect("a session").clone_into(&mut page.session);
        page
    }

    /// Calls a method and waits for its result.
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.try_call(method, parameters).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn try_call(&mut self, method: &str, parameters: &Value) -> Result<Value, Value> {
        self.last += 1;
        let mut command = json!({ "id": self.last, "method": method, "params": parameters });
        if !self.session.is_empty() {
            command["sessionId"] = self.session.clone().into();
        }
        self.socket.send(Message::text(command.to_string())).expect("DevTools");
        loop {
            let message = self.socket.read().expect("an answer of DevTools");
            let Ok(text) = message.to_text() else { continue };
            let Ok(mut answer) = serde_json::from_str::<Value>(text) else { continue };
            if answer["id"] == self.last {
                let error = answer["error"].take();
                return if error.is_null() { Ok(answer["result"].take()) } else { Err(error) };
            }
        }
    }

    /// Opens a URL.
    pub(crate) fn open(&mut self, url: &str) {
        self.call("Page.navigate", &json!({ "url": url }));
        self.wait_for("document.readyState == 'complete'");
    }

    /// The value of an expression in the page, which may be a promise.
    #[track_caller]
    pub(crate) fn script(&mut self, expression: &str) -> Value {
        self.evaluate(expression).unwrap_or_else(|error| panic!("{expression:.200}: {error}"))
    }

    /// The same; fails where `DevTools` cannot ask the page, as while it gives way to the next.
    #[track_caller]
    fn evaluate(&mut self, expression: &str) -> Result<Value, Value> {
        let asked = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut result = self.try_call("Runtime.evaluate", &asked)?;
        assert!(result["exceptionDetails"].is_null(), "{expression:.200}: {}", result["exceptionDetails"]);
        Ok(result["result"]["value"].take())
    }

    /// Waits until an expression is true in the page. Where the page gives way to the next meanwhile, it is asked of that one.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, expression: &str) {
        wait_until(expression, || match self.evaluate(expression) {
            Ok(value) => (value == true).then_some(()),
            Err(error) if error["code"] == NOT_NOW => None,
            Err(error) => panic!("{expression:.200}: {error}"),
        });
    }

    /// Has the page look as on a screen of this size, in light or dark colours.
    pub(crate) fn screen(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// A picture of the visible part, as WebP in base64, which is smaller than Chromium's PNG. Quality 100 has no loss, and is the
    /// smallest for text in few colours.
    pub(crate) fn picture(&mut self, quality: u8) -> String {
        let picture = self.call("Page.captureScreenshot", &json!({ "format": "webp", "quality": quality }));
        picture["data"].as_str().expect("a picture").to_owned()
    }
}
