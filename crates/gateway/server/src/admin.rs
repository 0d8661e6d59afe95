//! The admin listener: health, profiles and pages of the service over plain HTTP, for nearby machines.

mod answers;
mod profile;

use std::convert::Infallible;
use std::fmt;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brisk_net::{Drain, SilentLimit};
use bytes::Bytes;
use http::header::{HeaderMap, ORIGIN};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};

use self::answers::{is_without_name, not_allowed, text, typed};
use self::profile::Begun;
use crate::watchdog::Pulse;

/// Admin connections at a time: a few scrapers and people.
const CONNECTIONS: usize = 64;

/// Admin connections of one client at a time, so that a balancer beside a client that holds all it may gets a response.
const CONNECTIONS_OF_CLIENT: usize = CONNECTIONS / 2;

/// File descriptors reserved for admin connections, so that metrics can be read in a shortage.
pub(crate) const SPARE_DESCRIPTORS: usize = 8;

/// Time for a client to send a request head, from the start of the connection or the end of the last response.
const HEAD_LIMIT: Duration = Duration::from_secs(5);

/// The pages of a service on the admin listener. Every server has `/healthz`, `/readyz` and `/profile` beside them.
#[derive(Default)]
pub struct Pages {
    shown: Vec<Shown>,
    actions: Vec<Action>,
    troubles: Vec<Box<Trouble>>,
    notes: Vec<Box<Trouble>>,
}

/// Reason for which the service is not ready, or note for the operator, if any.
type Trouble = dyn Fn() -> Option<String> + Send + Sync;

struct Shown {
    path: &'static str,
    content_type: &'static str,
    under_any_name: bool,
    text: Box<dyn Fn() -> String + Send + Sync>,
}

struct Action {
    path: &'static str,
    act: Box<dyn Fn() -> Result<String, String> + Send + Sync>,
}

impl Pages {
    /// Adds a page: responds to `GET` and `HEAD` of `path` with the result of `text`, which runs on the main thread and
    /// must not block.
    ///
    /// Requests whose `Host` is neither an IP address nor `localhost` get `421`, as a protection from DNS rebinding: a
    /// foreign page whose name resolves to this machine cannot read anything through a browser here.
    #[must_use]
    pub fn show(
        mut self,
        path: &'static str,
        content_type: &'static str,
        text: impl Fn() -> String + Send + Sync + 'static,
    ) -> Self {
        self.shown.push(Shown { path, content_type, under_any_name: false, text: Box::new(text) });
        self
    }

    /// Like [`Self::show`], for requests of any host: for machine-readable, public content.
    #[must_use]
    pub fn show_under_any_name(
        self,
        path: &'static str,
        content_type: &'static str,
        text: impl Fn() -> String + Send + Sync + 'static,
    ) -> Self {
        let mut pages = self.show(path, content_type, text);
        pages.shown.last_mut().expect("it was added").under_any_name = true;
        pages
    }

    /// Makes `/readyz` respond with `503` while `trouble` returns a reason, in one line. `trouble` runs on the main thread
    /// and must not block.
    #[must_use]
    pub fn ready_unless(mut self, trouble: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        self.troubles.push(Box::new(trouble));
        self
    }

    /// Adds the lines that `note` returns to the response of `/readyz`, whose status does not depend on them: troubles
    /// that affect no client yet. `note` runs on the main thread and must not block.
    #[must_use]
    pub fn note(mut self, note: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        self.notes.push(Box::new(note));
        self
    }

    /// Adds an action: responds to `POST` of `path` with the result of `act`: `200`, or `409` with the error. `act` runs on
    /// the main thread and must not block. Requests from browser pages (with `Origin`) get `403`.
    #[must_use]
    pub fn act(
        mut self,
        path: &'static str,
        act: impl Fn() -> Result<String, String> + Send + Sync + 'static,
    ) -> Self {
        self.actions.push(Action { path, act: Box::new(act) });
        self
    }

    /// List of all paths, for a client that requests an unknown one.
    fn index(&self) -> String {
        let own = self.shown.iter().map(|shown| shown.path);
        format!("not found; there are /healthz, /readyz, /profile, {}\n", own.collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths = self.shown.iter().map(|shown| shown.path);
        f.debug_list().entries(paths.chain(self.actions.iter().map(|action| action.path))).finish()
    }
}

/// All pages of the admin listener.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    pages: Arc<Pages>,
    drain: Drain,
    pulse: Arc<Pulse>,
    exit: Arc<Exit>,
}

/// The end of the process as `/readyz` shows it.
#[derive(Debug, Default)]
pub(crate) struct Exit {
    /// Whether the process waits for the drain, see [`ServerSettings::drain_delay`](crate::ServerSettings::drain_delay).
    pub(crate) is_near: AtomicBool,
    /// Whether a successor serves: `/readyz` does not respond with `503` then, however this process drains.
    pub(crate) is_replaced: AtomicBool,
}

/// Serves `socket` until the future is dropped, or until the socket fails, which is logged.
pub(crate) async fn serve(admin: Admin, socket: TcpListener) {
    let Err(error) = accept(admin, socket).await;
    tracing::error!(%error, "the admin listener broke: it accepts nothing more");
}

async fn accept(admin: Admin, socket: TcpListener) -> std::io::Result<Infallible> {
    let mut listener = brisk_net::Listener::new(socket)?.with_spare_descriptors(SPARE_DESCRIPTORS);
    let limit = SilentLimit::new(CONNECTIONS, CONNECTIONS_OF_CLIENT);
    loop {
        let (tcp, peer) = listener.accept().await?;
        // Closed without a response, which would need a task and a timeout of its own.
        let Some(permit) = limit.try_acquire(peer.ip()) else { continue };
        let admin = admin.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| {
                permit.head_received();
                let begun = admin.begin(&request);
                async move {
                    Ok::<_, Infallible>(match begun {
                        Begun::Answered(response) => response,
                        Begun::Running(profile) => profile.answer().await,
                    })
                }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_LIMIT)
                .serve_connection(TokioIo::new(tcp), service);
            if let Some(Err(error)) = permit.run(connection).await {
                tracing::debug!(%error, "admin connection");
            }
        });
    }
}

impl Admin {
    pub(crate) fn new(pages: Pages, drain: Drain, pulse: Arc<Pulse>) -> Self {
        Self { pages: Arc::new(pages), drain, pulse, exit: Arc::default() }
    }

    /// State that the main thread changes.
    pub(crate) fn exit(&self) -> &Arc<Exit> {
        &self.exit
    }

    fn begin<B>(&self, request: &Request<B>) -> Begun {
        if request.uri().path() == profile::PATH {
            return profile::begin(request, &self.pulse);
        }
        Begun::Answered(self.respond(request))
    }

    fn respond<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        let action = self.pages.actions.iter().find(|action| action.path == path);
        match (request.method(), action) {
            (&Method::POST, Some(action)) => act(action, request.headers()),
            (_, Some(_)) => not_allowed("POST", "only POST\n"),
            (&Method::GET | &Method::HEAD, None) => self.show(request, path),
            (_, None) => not_allowed("GET, HEAD", "only GET and HEAD\n"),
        }
    }

    fn show<B>(&self, request: &Request<B>, path: &str) -> Response<Full<Bytes>> {
        match path {
            "/healthz" => text(StatusCode::OK, "ok\n"),
            // Last requests of clients that connected before: those of the successor get its response.
            "/readyz" if self.exit.is_replaced.load(Ordering::Relaxed) => self.readiness(),
            // Before the health: a process that drains must lose its traffic, however healthy it is.
            "/readyz" if self.drain.started() => text(StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
            "/readyz" if self.exit.is_near.load(Ordering::Relaxed) => {
                text(StatusCode::SERVICE_UNAVAILABLE, "about to drain\n")
            }
            "/readyz" => self.readiness(),
            _ => match self.pages.shown.iter().find(|shown| shown.path == path) {
                Some(shown) if !shown.under_any_name && !is_without_name(request) => text(
                    StatusCode::MISDIRECTED_REQUEST,
                    "not shown under a name: ask by the listener's IP address, or by localhost\n",
                ),
                Some(shown) => typed(shown.content_type, (shown.text)()),
                None => text(StatusCode::NOT_FOUND, self.pages.index()),
            },
        }
    }

    fn readiness(&self) -> Response<Full<Bytes>> {
        let stuck = self.pulse.stuck();
        let stuck = (!stuck.is_empty()).then(|| format!("workers that do not turn: {stuck:?}"));
        let own = self.pages.troubles.iter().filter_map(|trouble| trouble());
        let mut lines: Vec<_> = stuck.into_iter().chain(own).collect();
        let status = if lines.is_empty() {
            lines.push("ready".to_owned());
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        lines.extend(self.pages.notes.iter().filter_map(|note| note()));
        text(status, lines.join("\n") + "\n")
    }
}

fn act(action: &Action, headers: &HeaderMap) -> Response<Full<Bytes>> {
    // A page of a stranger can make a browser on this machine send a POST here, but not without this header.
    if headers.contains_key(ORIGIN) {
        return text(StatusCode::FORBIDDEN, "not for pages in a browser\n");
    }
    match (action.act)() {
        Ok(done) => text(StatusCode::OK, done),
        Err(error) => text(StatusCode::CONFLICT, format!("{error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::sync::{Mutex, PoisonError};

    use brisk_net::drain;
    use http::header::HOST;
    use http::request::Builder;
    use http_body_util::BodyExt;

    use super::*;

    fn admin() -> Admin {
        let pages = Pages::default()
            .show("/private", "text/plain", || "shown\n".to_owned())
            .show_under_any_name("/public", "text/plain", || "shown\n".to_owned())
            .act("/act", || Ok("done\n".to_owned()));
        Admin::new(pages, drain::channel().1, Pulse::new(1))
    }

    fn status(request: Builder) -> u16 {
        admin().respond(&request.body(()).expect("a request")).status().as_u16()
    }

    #[test]
    fn a_page_is_shown_to_who_asks_by_address_or_localhost_and_not_to_a_page_of_another_name() {
        for host in
            ["127.0.0.1:9443", "192.0.2.1", "[::1]:9443", "[2001:db8::1]", "localhost", "LocalHost:9443"]
        {
            assert_eq!(status(Request::get("/private").header(HOST, host)), 200, "{host}");
            assert_eq!(
                status(Request::get(format!("http://{host}/private")).header(HOST, host)),
                200,
                "{host}"
            );
        }
        let names = [
            "evil.test",
            "evil.test:9443",
            "localhost.evil.test",
            "127.0.0.1.evil.test",
            "localhost@evil.test",
            "[::1].evil.test",
            "",
        ];
        for host in names {
            assert_eq!(status(Request::get("/private").header(HOST, host)), 421, "{host}");
            assert_eq!(status(Request::head("/private").header(HOST, host)), 421, "{host}");
            for path in ["/public", "/healthz", "/readyz"] {
                assert_eq!(status(Request::get(path).header(HOST, host)), 200, "{host}{path}");
            }
        }
        assert_eq!(status(Request::get("/private").header(HOST, "localhost").header(HOST, "evil.test")), 421);
        assert_eq!(status(Request::get("http://evil.test/private").header(HOST, "localhost")), 421);
        // HTTP/1.0 needs no `Host`, and no browser leaves it out.
        assert_eq!(status(Request::get("/private")), 200);
    }

    #[test]
    fn a_service_that_cannot_serve_is_not_ready_and_says_why() {
        let is_ill = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&is_ill);
        let trouble = move || asked.load(Ordering::Relaxed).then(|| "no keys".to_owned());
        let pages = Pages::default().ready_unless(|| None).ready_unless(trouble);
        let admin = Admin::new(pages, drain::channel().1, Pulse::new(1));
        let status = |path| admin.respond(&Request::get(path).body(()).expect("a request")).status().as_u16();
        assert_eq!((status("/readyz"), status("/healthz")), (200, 200));
        is_ill.store(true, Ordering::Relaxed);
        assert_eq!((status("/readyz"), status("/healthz")), (503, 200));
    }

    #[test]
    fn a_process_that_is_about_to_drain_is_not_ready() {
        let (trigger, drain) = drain::channel();
        let admin = Admin::new(Pages::default(), drain, Pulse::new(1));
        let status = |path| admin.respond(&Request::get(path).body(()).expect("a request")).status().as_u16();
        assert_eq!((status("/readyz"), status("/healthz")), (200, 200));
        admin.exit().is_near.store(true, Ordering::Relaxed);
        assert_eq!((status("/readyz"), status("/healthz")), (503, 200));
        trigger.start();
        assert_eq!(status("/readyz"), 503);
        admin.exit().is_replaced.store(true, Ordering::Relaxed);
        assert_eq!(status("/readyz"), 200, "the successor is ready at the same address");
    }

    #[tokio::test]
    async fn notes_are_shown_and_do_not_change_whether_a_service_is_ready() {
        let page = |pages: Pages| {
            let pages = pages.note(|| None).note(|| Some("a note".to_owned()));
            Admin::new(pages, drain::channel().1, Pulse::new(1)).readiness()
        };
        for (pages, status, expected) in [
            (Pages::default(), 200, "ready\na note\n"),
            (Pages::default().ready_unless(|| Some("no keys".to_owned())), 503, "no keys\na note\n"),
        ] {
            let response = page(pages);
            assert_eq!(response.status().as_u16(), status);
            assert_eq!(response.into_body().collect().await.expect("a body").to_bytes(), expected);
        }
    }

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Log {
        fn text(&self) -> String {
            String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
        }
    }

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_listener_that_breaks_is_in_the_log() {
        let log = Log::default();
        let writer = log.clone();
        let lines = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
        let _log = tracing::subscriber::set_default(lines);
        let file = std::fs::File::open("/dev/null").expect("a file");
        serve(admin(), OwnedFd::from(file).into()).await;
        let text = log.text();
        assert!(text.contains("ERROR") && text.contains("the admin listener broke"), "{text}");
    }
}
