//! Browser family and device class, as far as the `User-Agent` header names them.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::closed::closed;

/// Maximum number of bytes of `User-Agent` that are searched. Browsers send fewer than 250.
const LOOKED_AT: usize = 512;

closed! {
    /// The family of a browser.
    Browser {
        /// Unknown or another browser.
        Other = "other",
        /// Chrome and Chromium.
        Chrome = "chrome",
        /// Edge.
        Edge = "edge",
        /// Firefox.
        Firefox = "firefox",
        /// Safari.
        Safari = "safari",
        /// Samsung Internet.
        Samsung = "samsung",
        /// Opera.
        Opera = "opera",
        /// A crawler that identifies itself.
        Robot = "robot",
    }
}

closed! {
    /// The class of a device.
    Device {
        /// Unknown or another device.
        Other = "other",
        /// A phone.
        Phone = "phone",
        /// A tablet.
        Tablet = "tablet",
        /// A desktop or laptop computer.
        Desktop = "desktop",
    }
}

/// Substrings of `User-Agent` with their meaning. The first match decides.
type Signs<T> = Vec<(Finder<'static>, T)>;

/// In this order because most browsers name others for compatibility: Edge contains `Chrome`, and Chrome `Safari`.
static BROWSERS: LazyLock<Signs<Browser>> = LazyLock::new(|| {
    signs(&[
        ("bot", Browser::Robot),
        ("Bot", Browser::Robot),
        ("spider", Browser::Robot),
        ("crawl", Browser::Robot),
        ("Edg/", Browser::Edge),
        ("EdgA/", Browser::Edge),
        ("EdgiOS/", Browser::Edge),
        ("OPR/", Browser::Opera),
        ("OPT/", Browser::Opera),
        ("SamsungBrowser/", Browser::Samsung),
        ("FxiOS/", Browser::Firefox),
        ("Firefox/", Browser::Firefox),
        ("CriOS/", Browser::Chrome),
        ("Chrome/", Browser::Chrome),
        ("Version/", Browser::Safari),
    ])
});

static DEVICES: LazyLock<Signs<Device>> = LazyLock::new(|| {
    signs(&[
        ("iPad", Device::Tablet),
        ("Tablet", Device::Tablet),
        ("iPhone", Device::Phone),
        ("Mobile", Device::Phone),
        // Android sends "Mobile" on phones only.
        ("Android", Device::Tablet),
        ("Windows NT", Device::Desktop),
        ("Macintosh", Device::Desktop),
        ("CrOS", Device::Desktop),
        ("X11", Device::Desktop),
    ])
});

fn signs<T: Copy>(of: &[(&'static str, T)]) -> Signs<T> {
    // Prepared once, because each header is searched for up to 15 signs.
    of.iter().map(|(sign, value)| (Finder::new(*sign), *value)).collect()
}

fn first<T: Copy>(agent: &[u8], signs: &Signs<T>) -> Option<T> {
    let agent = &agent[..agent.len().min(LOOKED_AT)];
    signs.iter().find(|(sign, _)| sign.find(agent).is_some()).map(|(_, value)| *value)
}

impl Browser {
    /// The family named by a `User-Agent` header; [`Self::Other`] for an unknown one. Searches its first 512 bytes.
    pub fn of(user_agent: &[u8]) -> Self {
        first(user_agent, &BROWSERS).unwrap_or(Self::Other)
    }
}

impl Device {
    /// The class named by a `User-Agent` header. Searches its first 512 bytes. An iPad that requests desktop pages
    /// counts as a [`Self::Desktop`].
    pub fn of(user_agent: &[u8]) -> Self {
        first(user_agent, &DEVICES).unwrap_or(Self::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_and_devices_as_they_name_themselves() {
        for (agent, browser, device) in [
            (
                "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36",
                Browser::Chrome,
                Device::Desktop,
            ),
            (
                "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36 Edg/141.0.0.0",
                Browser::Edge,
                Device::Desktop,
            ),
            (
                "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
                Browser::Firefox,
                Device::Desktop,
            ),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Mobile/15E148 Safari/604.1",
                Browser::Safari,
                Device::Phone,
            ),
            (
                "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/28.0 Chrome/130.0.0.0 Mobile Safari/537.36",
                Browser::Samsung,
                Device::Phone,
            ),
            (
                "Mozilla/5.0 (Linux; Android 15; SM-X910) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36",
                Browser::Chrome,
                Device::Tablet,
            ),
            (
                "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
                Browser::Robot,
                Device::Other,
            ),
            ("curl/8.5.0", Browser::Other, Device::Other),
            ("", Browser::Other, Device::Other),
        ] {
            assert_eq!(
                (Browser::of(agent.as_bytes()), Device::of(agent.as_bytes())),
                (browser, device),
                "{agent}"
            );
        }
    }

    #[test]
    fn the_end_of_a_long_header_is_not_looked_at() {
        let agent = format!("{}Firefox/1", "x".repeat(LOOKED_AT));
        assert_eq!(Browser::of(agent.as_bytes()), Browser::Other);
    }
}
