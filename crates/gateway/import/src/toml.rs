//! The written form of TOML: texts, lists, tables and the units of brisk.

/// Keys of a table with their values as TOML, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Keys(pub(crate) Vec<(String, String)>);

impl Keys {
    /// Sets a key to a value in TOML; replaces an earlier value.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<String>) {
        let value = value.into();
        match self.0.iter_mut().find(|(own, _)| own == key) {
            Some((_, own)) => *own = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == key).map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A table with one key.
    pub(crate) fn of(key: &str, value: impl Into<String>) -> Self {
        Self(vec![(key.to_owned(), value.into())])
    }

    /// Sets a table: one key behind a dot (`limits.body_size`), or several as an inline table.
    pub(crate) fn set_table(&mut self, name: &str, table: &Self) {
        match table.0.as_slice() {
            [(key, value)] => self.set(&format!("{name}.{key}"), value.clone()),
            _ => self.set(name, table.inline()),
        }
    }

    /// The keys as an inline table.
    pub(crate) fn inline(&self) -> String {
        let parts: Vec<_> = self.0.iter().map(|(key, value)| format!("{} = {value}", own(key))).collect();
        format!("{{ {} }}", parts.join(", "))
    }
}

/// A key of an inline table, in which a dot is a part of the key.
fn own(key: &str) -> String {
    if key.contains('.') { raw(key) } else { bare(key) }
}

/// A key, in quotes if it needs them; a dot divides it.
pub(crate) fn bare(key: &str) -> String {
    let is_bare = |next: char| next.is_ascii_alphanumeric() || matches!(next, '-' | '_' | '.');
    let is_plain = !key.is_empty() && key.chars().all(is_bare);
    if is_plain { key.to_owned() } else { raw(key) }
}

/// A text that is used as it is: regular expressions and bodies.
pub(crate) fn raw(text: &str) -> String {
    let has_control = text.chars().any(char::is_control);
    // A literal text of TOML keeps backslashes, which expressions are full of. It cannot contain its own
    // quote or control characters.
    if text.contains(['\\', '"']) && !text.contains('\'') && !has_control {
        return format!("'{text}'");
    }
    let mut quoted = String::from("\"");
    for next in text.chars() {
        match next {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            next if next.is_control() => quoted.extend(["\\u", &format!("{:04X}", u32::from(next))]),
            next => quoted.push(next),
        }
    }
    quoted.push('"');
    quoted
}

/// A text in which brisk replaces variables of the environment.
pub(crate) fn text(text: &str) -> String {
    raw(&text.replace("${", "$${"))
}

/// A list of texts.
pub(crate) fn list<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<_> = texts.into_iter().map(|part| text(part.as_ref())).collect();
    format!("[{}]", texts.join(", "))
}

/// A number as TOML has it; none if it is another text.
pub(crate) fn number(text: &str) -> Option<String> {
    let number = text.parse::<i64>().ok().filter(|number| *number >= 0)?;
    Some(number.to_string())
}

/// A size of nginx (`10m`, `8k`, `1g`, `100`) in bytes.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let (number, factor) = match text.as_bytes().last()?.to_ascii_lowercase() {
        b'k' => (&text[..text.len() - 1], 1 << 10),
        b'm' => (&text[..text.len() - 1], 1 << 20),
        b'g' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// A size as brisk writes it.
pub(crate) fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.iter().find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    match unit {
        Some((shift, unit)) => format!("\"{}{unit}\"", bytes >> shift),
        None => format!("\"{bytes}B\""),
    }
}

/// A time of nginx (`30s`, `1h30m`, `60`, `100ms`) in milliseconds.
pub(crate) fn milliseconds(text: &str) -> Option<u64> {
    let (mut total, mut rest) = (0_u64, text);
    while !rest.is_empty() {
        let digits = rest.find(|next: char| !next.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        // Longer units first: the text is compared from its start, and `ms` also starts with `m`.
        let units: [(&str, u64); 8] = [
            ("ms", 1),
            ("s", 1000),
            ("m", 60_000),
            ("h", 3_600_000),
            ("d", 86_400_000),
            ("w", 604_800_000),
            ("M", 2_592_000_000),
            ("y", 31_536_000_000),
        ];
        // A number alone means seconds in nginx.
        let (unit, factor) = if rest.is_empty() {
            ("", 1000)
        } else {
            *units.iter().find(|(unit, _)| rest.starts_with(unit))?
        };
        rest = rest[unit.len()..].trim_start();
        total = total.checked_add(number.checked_mul(factor)?)?;
    }
    (!text.is_empty()).then_some(total)
}

/// A duration as brisk writes it.
pub(crate) fn duration(milliseconds: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    match units.iter().find(|(unit, _)| milliseconds > 0 && milliseconds.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("\"{}{name}\"", milliseconds / unit),
        None => format!("\"{milliseconds}ms\""),
    }
}

/// A name of a table: letters, digits, `_` and `-`.
pub(crate) fn name(text: &str) -> String {
    let plain = |next: char| if next.is_ascii_alphanumeric() || next == '_' { next } else { '-' };
    let name: String = text.chars().map(plain).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "app".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_nginx_become_those_of_brisk() {
        assert_eq!(bytes("10m").map(size).as_deref(), Some("\"10MiB\""));
        assert_eq!(bytes("100").map(size).as_deref(), Some("\"100B\""));
        assert_eq!(milliseconds("1h30m").map(duration).as_deref(), Some("\"90m\""));
        assert_eq!(milliseconds("60").map(duration).as_deref(), Some("\"1m\""));
        assert_eq!((milliseconds("x"), bytes("m")), (None, None));
    }

    #[test]
    fn texts_are_quoted_in_the_shortest_form() {
        assert_eq!(raw(r"^/a\.b$"), r"'^/a\.b$'");
        assert_eq!(raw("it's \\"), "\"it's \\\\\"");
        assert_eq!(text("a${b}"), "\"a$${b}\"");
    }
}
