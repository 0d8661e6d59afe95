//! Reader of the sections of PEM files (RFC 7468), which refuses each line that it does not understand.
//!
//! Parsers for general use skip sections with unknown labels and lines that they take for text, so that a damaged file loses
//! certificates without an error. Text before and between sections is permitted (RFC 7468 section 2).

use rustls_pki_types::CertificateDer;

use crate::text_fault::{MARKED, lines, pem_fault};

/// Labels of certificates (RFC 7468 section 5.1: the second is an older form of the first).
const CERTIFICATES: [&str; 2] = ["CERTIFICATE", "X509 CERTIFICATE"];

/// Labels of sections that are often in one file with certificates: keys and parameters.
const COMPANIONS: [&str; 6] = [
    "PRIVATE KEY",
    "RSA PRIVATE KEY",
    "EC PRIVATE KEY",
    "ENCRYPTED PRIVATE KEY",
    "EC PARAMETERS",
    "DH PARAMETERS",
];

/// The certificates in `pem`, in the order of the file. Private keys and parameters are skipped; there may be no certificate.
///
/// # Errors
///
/// A fault with its line, among them sections with other labels.
pub fn pem_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let sections = pem_sections(pem, &CERTIFICATES, &COMPANIONS)?;
    Ok(sections.into_iter().map(CertificateDer::from).collect())
}

/// The contents of the sections with a label of `wanted`, in the order of the file. Sections with a label of `companions` are
/// skipped.
///
/// # Errors
///
/// A fault with its line, among them sections with other labels. The message contains no part of a section.
pub fn pem_sections(pem: &[u8], wanted: &[&str], companions: &[&str]) -> Result<Vec<Vec<u8>>, String> {
    // First, because the loop below relies on the form: each BEGIN line has its END line, with the same
    // label.
    if let Some(fault) = pem_fault(pem) {
        return Err(fault);
    }
    let mut contents = Vec::new();
    let mut open: Option<(usize, Vec<u8>)> = None;
    for (number, line) in lines(pem) {
        let line = line.trim_ascii();
        let Some(label) = line.strip_prefix(MARKED[0].as_bytes()) else {
            match &mut open {
                Some(_) if line.starts_with(MARKED[1].as_bytes()) => {
                    let (begin, text) = open.take().expect("a section is open");
                    let content = brisk_secrets::decode(&text);
                    let content = content
                        .ok_or_else(|| format!("the section that begins in line {begin} is not base64"))?;
                    contents.push(content.to_vec());
                }
                Some((_, text)) => text.extend_from_slice(line),
                None => {}
            }
            continue;
        };
        let label = String::from_utf8_lossy(label.strip_suffix(b"-----").unwrap_or(label));
        if wanted.contains(&&*label) {
            open = Some((number, Vec::new()));
        } else if !companions.contains(&&*label) {
            return Err(unexpected(&label, number, wanted));
        }
    }
    Ok(contents)
}

fn unexpected(label: &str, number: usize, wanted: &[&str]) -> String {
    // The label is text of the file: control characters or a long text could forge lines of the log.
    let shown: String = label.chars().filter(|letter| !letter.is_control()).take(40).collect();
    let advice = match label {
        "TRUSTED CERTIFICATE" => {
            "a form of OpenSSL with additions: convert it with `openssl x509 -in FILE -out CONVERTED`"
                .to_owned()
        }
        "PKCS7" => "convert it with `openssl pkcs7 -print_certs -in FILE -out CONVERTED`".to_owned(),
        "X509 CRL" => "a revocation list belongs in the file of `crl`".to_owned(),
        _ => format!("remove it, or name a file with {}", wanted.first().copied().unwrap_or_default()),
    };
    format!("line {number}: a section {shown:?} is not read here: {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n";

    fn read(text: &str) -> Result<Vec<Vec<u8>>, String> {
        pem_certificates(text.as_bytes())
            .map(|all| all.into_iter().map(|certificate| certificate.to_vec()).collect())
    }

    #[test]
    fn text_line_ends_and_companions_are_no_fault() {
        let other = ONE.replace("CERTIFICATE", "X509 CERTIFICATE").replace("QUJD", "REVG");
        let key = ONE.replace("CERTIFICATE", "PRIVATE KEY");
        let whole = format!("subject: a\n{ONE}\n# --- next ---\n{key}{other}the end");
        for text in [
            whole.clone(),
            whole.replace('\n', "\r\n"),
            whole.replace('\n', "\r"),
            whole.replace("---\n", "---  \n"),
        ] {
            assert_eq!(read(&text), Ok(vec![b"ABC".to_vec(), b"DEF".to_vec()]), "{text:?}");
        }
        assert_eq!(read("no PEM"), Ok(Vec::new()));
    }

    #[test]
    fn nothing_is_skipped_without_a_word() {
        let labelled = |label: &str| format!("{ONE}{}", ONE.replace("CERTIFICATE", label));
        for (text, wanted) in [
            (format!("{}{ONE}", ONE.trim_end()), "line 3: "),
            (format!("text {ONE}{ONE}"), "line 1: "),
            (format!("{ONE}> {ONE}"), "line 4: "),
            (
                labelled("TRUSTED CERTIFICATE"),
                "line 4: a section \"TRUSTED CERTIFICATE\" is not read here: a form of OpenSSL",
            ),
            (labelled("X509 CRL"), "line 4: a section \"X509 CRL\" is not read here: a revocation list"),
            (labelled("ANY PRIVATE KEY"), "line 4: a section \"ANY PRIVATE KEY\" is not read here"),
            (format!("{ONE}{}", ONE.replace("-----END CERTIFICATE-----\n", "")), "line 4 has no END line"),
            (format!("{ONE}{}", ONE.replace("QUJD", "QU!D")), "line 5: not base64"),
            (format!("\u{feff}{ONE}"), "line 1 begins with a byte order mark"),
            (format!("{}\r{ONE}", ONE.replace('\n', "\r").replace("QUJD", "QU")), "begins in line 1"),
        ] {
            let fault = read(&text).expect_err(&text);
            assert!(fault.contains(wanted), "{text:?}: {fault}");
        }
    }
}
