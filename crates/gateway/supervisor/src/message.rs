//! Notifications of a generation, as the supervisor reads them: untrusted input of bounded size.

use std::str;

/// Maximum length of a notification in bytes, as in systemd (`NOTIFY_BUFFER_MAX`).
pub(crate) const LONGEST: usize = 4096;

/// Maximum length of a descriptor's name in bytes, as in systemd (`FDNAME_MAX`).
const LONGEST_NAME: usize = 255;

/// Maximum length of a status in characters.
const LONGEST_STATUS: usize = 512;

/// A notification by the protocol of `sd_notify(3)`. Fields that the supervisor does not use are left out.
#[derive(Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the protocol")]
pub(crate) struct Message {
    /// `READY=1`: the generation serves, or has reloaded.
    pub(crate) is_ready: bool,
    /// `RELOADING=1`.
    pub(crate) is_reloading: bool,
    /// `STOPPING=1`: the generation accepts no further connections.
    pub(crate) is_stopping: bool,
    /// `WATCHDOG=1`.
    pub(crate) is_alive: bool,
    /// `FDSTORE=1`: the descriptors of the message are to be stored.
    pub(crate) stores: bool,
    /// `FDNAME=`, if it is a valid name.
    pub(crate) name: Option<String>,
    /// `STATUS=`, for people: at most 512 characters without control characters.
    pub(crate) status: Option<String>,
}

impl Message {
    /// Reads a message. `None` if it is longer than [`LONGEST`] or no text in UTF-8; unknown lines are ignored.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > LONGEST {
            return None;
        }
        let mut message = Self::default();
        for line in str::from_utf8(bytes).ok()?.lines() {
            match line.split_once('=') {
                Some(("READY", "1")) => message.is_ready = true,
                Some(("RELOADING", "1")) => message.is_reloading = true,
                Some(("STOPPING", "1")) => message.is_stopping = true,
                Some(("WATCHDOG", "1")) => message.is_alive = true,
                Some(("FDSTORE", "1")) => message.stores = true,
                Some(("FDNAME", name)) if is_name(name) => message.name = Some(name.to_owned()),
                Some(("STATUS", text)) => {
                    let shown = text.chars().filter(|sign| !sign.is_control()).take(LONGEST_STATUS);
                    message.status = Some(shown.collect());
                }
                _ => {}
            }
        }
        Some(message)
    }
}

/// Whether `name` can be an element of `LISTEN_FDNAMES`, whose separator is the colon.
fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_graphic() && byte != b':';
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_message_are_read_in_any_order() {
        let message = Message::read(b"STATUS=serves\nREADY=1\nWATCHDOG=1\nX_OTHER=1").expect("a message");
        let status = Some("serves".to_owned());
        assert_eq!(message, Message { is_ready: true, is_alive: true, status, ..Message::default() });
        let message = Message::read(b"FDSTORE=1\nFDNAME=https\n").expect("a message");
        assert_eq!(message, Message { stores: true, name: Some("https".to_owned()), ..Message::default() });
        let message = Message::read(b"RELOADING=1\nMONOTONIC_USEC=17\nSTOPPING=1").expect("a message");
        assert_eq!(message, Message { is_reloading: true, is_stopping: true, ..Message::default() });
    }

    #[test]
    fn other_values_and_names_have_no_effect() {
        let nothing = Some(Message::default());
        for text in
            ["", "\n\n=\n=1", "READY", "READY=0", "READY=1 ", "ready=1", "WATCHDOG=trigger", "FDNAME="]
        {
            assert_eq!(Message::read(text.as_bytes()), nothing, "{text:?}");
        }
        for name in ["a:b", "a b", "a\u{1}b", "\u{e9}", &"a".repeat(256)] {
            assert_eq!(Message::read(format!("FDNAME={name}").as_bytes()), nothing, "{name:?}");
        }
    }

    #[test]
    fn a_status_is_one_line_of_limited_length() {
        let status = |text: &str| Message::read(text.as_bytes()).and_then(|message| message.status);
        assert_eq!(status("STATUS=a\u{1b}[1m=b\nREADY=1").as_deref(), Some("a[1m=b"));
        assert_eq!(status(&format!("STATUS={}", "\u{e9}".repeat(600))), Some("\u{e9}".repeat(512)));
    }

    #[test]
    fn garbage_is_no_message() {
        assert_eq!(Message::read(&[b'a'; LONGEST]), Some(Message::default()));
        assert_eq!(Message::read(&[b'a'; LONGEST + 1]), None);
        assert_eq!(Message::read(b"READY=1\n\xff"), None);
        // Every byte at every place of a message, none of which may panic.
        for place in 0..16 {
            for byte in 0..=u8::MAX {
                let mut bytes = *b"READY=1\nFDNAME=a";
                bytes[place] = byte;
                let _ = Message::read(&bytes);
            }
        }
    }
}
