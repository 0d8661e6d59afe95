//! Faults in the form of text files and PEM files, with their line and the correction.
//!
//! The parser of PEM skips text that it does not understand, and its errors name no line. The functions here examine a
//! file that was refused. Messages contain no part of the file, which may be a private key.

const UTF16: &str = "it is UTF-16 instead of UTF-8: convert it with `iconv -f UTF-16 -t UTF-8`";
const MARK: &str = "line 1 begins with a byte order mark: remove it with `sed -i '1s/^\\xEF\\xBB\\xBF//'`, or save the file \
                    as UTF-8 without it";
const DER: &str = "it is DER instead of PEM: convert it with `openssl x509 -inform der` (certificate) or \
                   `openssl pkey -inform der` (key)";
const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";

/// Begins of the lines around a section.
pub(crate) const MARKED: [&str; 2] = [BEGIN, END];

/// The lines of `bytes` with their numbers, ended by LF, CR LF or CR.
pub(crate) fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut is_after_cr = false;
    let parts = bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')).filter(move |part| {
        // CR LF is one end of line: counted twice, the numbers in messages would differ from the numbers of
        // an editor.
        let is_end_of_last = is_after_cr && *part == b"\n";
        is_after_cr = part.ends_with(b"\r");
        !is_end_of_last
    });
    parts.enumerate().map(|(index, line)| (index + 1, line))
}

/// Fault in the encoding of a text file: a byte order mark, or UTF-16. `bytes` are the file or its first 16 bytes.
pub fn encoding_fault(bytes: &[u8]) -> Option<&'static str> {
    let pairs = bytes[..bytes.len().min(16)].as_chunks::<2>().0;
    // Without a byte order mark: letters and digits have one byte that is zero.
    let alternates = |zero: usize| pairs.iter().all(|pair| pair[zero] == 0 && pair[1 - zero] != 0);
    match bytes {
        [0xef, 0xbb, 0xbf, ..] => Some(MARK),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some(UTF16),
        _ if pairs.len() > 1 && (alternates(0) || alternates(1)) => Some(UTF16),
        _ => None,
    }
}

/// The first fault in a PEM file that its parser refused; `None` if the form of all sections is right.
pub fn pem_fault(bytes: &[u8]) -> Option<String> {
    if let Some(fault) = encoding_fault(bytes) {
        return Some(fault.to_owned());
    }
    // A SEQUENCE of 128 bytes or more: the beginning of a certificate, and of most keys, in DER.
    if let [0x30, 0x81..=0x84, ..] = bytes {
        return Some(DER.to_owned());
    }
    let mut open: Option<Section<'_>> = None;
    for (number, line) in lines(bytes) {
        // A replacement character is no base64, and is permitted in text before a section (RFC 7468 section
        // 2).
        let line = str::from_utf8(line).unwrap_or("\u{fffd}").trim_ascii();
        if let Some(label) = line.strip_prefix(BEGIN).and_then(|label| label.strip_suffix("-----")) {
            if let Some(section) = open {
                return Some(format!("line {number}: another section begins, but {}", section.unfinished()));
            }
            open = Some(Section { label, line: number, characters: 0, is_padded: false });
        } else if let Some(label) = line.strip_prefix(END).and_then(|label| label.strip_suffix("-----")) {
            let Some(section) = open.take() else {
                return Some(format!(
                    "line {number}: a section ends here that has no line -----BEGIN ...-----"
                ));
            };
            if section.label != label {
                return Some(format!(
                    "line {number}: the END line has another name than the BEGIN line {}",
                    section.line
                ));
            }
            if let Some(fault) = section.fault() {
                return Some(fault);
            }
        } else if let Some(section) = &mut open {
            if let Some(fault) = section.add(line) {
                return Some(format!("line {number}: {fault}"));
            }
        } else if MARKED.iter().any(|mark| line.contains(mark)) && !line.starts_with("--") {
            return Some(format!("line {number}: BEGIN and END lines contain nothing else"));
        } else if line.starts_with("--") && (line.contains("BEGIN") || line.contains("END")) {
            return Some(format!(
                "line {number}: BEGIN and END lines have five dashes before and after the name"
            ));
        }
    }
    open.map(|section| section.unfinished())
}

/// The lines between BEGIN and END.
struct Section<'a> {
    label: &'a str,
    line: usize,
    characters: usize,
    is_padded: bool,
}

impl Section<'_> {
    fn unfinished(&self) -> String {
        format!(
            "the section that begins in line {} has no END line: the file was cut off, copy it again",
            self.line
        )
    }

    /// Counts the characters of `line`, or returns its fault.
    fn add(&mut self, line: &str) -> Option<&'static str> {
        // RFC 1421 headers of encrypted keys; their contents concern the caller.
        if line.contains(": ") && self.characters == 0 {
            return None;
        }
        // Before the check of base64, whose message would not name the damaged END line.
        if line.contains("--") {
            return Some("BEGIN and END lines have five dashes before and after the name");
        }
        let digits = line.trim_end_matches('=');
        if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/') {
            return Some("not base64: copy the file again, without line numbers, quotation marks or spaces");
        }
        if self.is_padded && !line.is_empty() {
            return Some(
                "text after the end of the base64 (=): two sections were mixed, copy the file again",
            );
        }
        self.characters += line.len();
        self.is_padded |= digits.len() < line.len();
        None
    }

    /// The fault of the whole section.
    fn fault(&self) -> Option<String> {
        let line = self.line;
        if self.characters == 0 {
            Some(format!("the section that begins in line {line} is empty: copy the file again"))
        } else if !self.characters.is_multiple_of(4) {
            Some(format!(
                "characters are missing in the section that begins in line {line} (base64 has a multiple of four): \
                 copy the file again"
            ))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = "bag attributes\n-----BEGIN X-----\nQUJD\nQUI=\n-----END X-----\n";

    #[test]
    fn sound_files_have_no_fault() {
        for text in ["", "no PEM", SOUND, &SOUND.replace('\n', "\r\n"), &SOUND.repeat(2)] {
            assert_eq!(pem_fault(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(encoding_fault(&[0, 0, 0, 0]), None);
        assert_eq!(encoding_fault(b"a\0"), None);
    }

    #[test]
    fn each_fault_has_its_line_and_a_correction() {
        let utf16 = |order: fn(u16) -> [u8; 2]| SOUND.encode_utf16().flat_map(order).collect::<Vec<_>>();
        for (bytes, wanted) in [
            (format!("\u{feff}{SOUND}").into_bytes(), "line 1 begins with a byte order mark: remove it"),
            ([&[0xff, 0xfe][..], &utf16(u16::to_le_bytes)].concat(), "iconv -f UTF-16"),
            (utf16(u16::to_le_bytes), "iconv -f UTF-16"),
            (utf16(u16::to_be_bytes), "iconv -f UTF-16"),
            (vec![0x30, 0x82, 1, 0], "openssl x509 -inform der"),
            (SOUND.replace("QUJD", "Q!JD").into_bytes(), "line 3: not base64"),
            (
                SOUND.replace("QUJD", "QUJ").into_bytes(),
                "characters are missing in the section that begins in line 2",
            ),
            (SOUND.replace("QUJD", "QU==").into_bytes(), "line 4: text after the end"),
            (SOUND.replace("QUJD\nQUI=\n", "").into_bytes(), "the section that begins in line 2 is empty"),
            (SOUND.replace("-----END X-----\n", "").into_bytes(), "begins in line 2 has no END line"),
            (
                SOUND.replace("-----END X-----", "----END X-----").into_bytes(),
                "line 5: BEGIN and END lines have five",
            ),
            (SOUND.replace("-----BEGIN", "----BEGIN").into_bytes(), "line 2: BEGIN and END lines have five"),
            (SOUND.replace("END X", "END Y").into_bytes(), "line 5: the END line has another name"),
            (SOUND.replace("-----BEGIN X-----\n", "").into_bytes(), "line 4: a section ends here"),
            (SOUND.replace("-----END X-----\n", SOUND).into_bytes(), "line 5: not base64"),
        ] {
            let fault = pem_fault(&bytes).expect(wanted);
            assert!(fault.contains(wanted), "{fault}");
        }
    }
}
