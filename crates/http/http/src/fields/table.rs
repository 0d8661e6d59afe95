//! Static tables of HPACK and QPACK as fields.

use std::sync::LazyLock;

use brisk_wire::h2::hpack;
use brisk_wire::h3::qpack;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Version};

use super::field::Field;

/// Static table of a field compression.
pub trait StaticTable {
    /// Version of the messages that are compressed with the table.
    const VERSION: Version;

    /// Fields of the table by index.
    fn fields() -> &'static [Constant];
}

/// Static table of HPACK (RFC 7541 appendix A).
#[derive(Debug)]
pub struct Hpack;

/// Static table of QPACK (RFC 9204 appendix A).
#[derive(Debug)]
pub struct Qpack;

/// Entry of a static table.
#[derive(Debug)]
pub struct Constant {
    pub(super) name: ConstantName,
    /// Field with the name and the value of the entry. Its clones allocate nothing.
    pub(super) field: Field,
}

/// Name of an entry.
#[derive(Debug)]
pub(super) enum ConstantName {
    Pseudo(&'static str),
    Header(HeaderName),
}

impl StaticTable for Hpack {
    const VERSION: Version = Version::HTTP_2;

    fn fields() -> &'static [Constant] {
        // Index 0 is unused (RFC 7541 section 6.1).
        static FIELDS: LazyLock<Vec<Constant>> =
            LazyLock::new(|| [("", "")].iter().chain(&hpack::CONSTANTS).map(Constant::new).collect());
        &FIELDS
    }
}

impl StaticTable for Qpack {
    const VERSION: Version = Version::HTTP_3;

    fn fields() -> &'static [Constant] {
        static FIELDS: LazyLock<Vec<Constant>> =
            LazyLock::new(|| qpack::CONSTANTS.iter().map(Constant::new).collect());
        &FIELDS
    }
}

impl Constant {
    fn new((name, value): &(&'static str, &'static str)) -> Self {
        // Static values: all workers clone them, and would contend for counts of references.
        let field = match Field::new(name.as_bytes(), value.as_bytes()) {
            Field::Header(..) => {
                Field::Header(HeaderName::from_static(name), HeaderValue::from_static(value))
            }
            Field::Path(_) => Field::Path(PathAndQuery::from_static(value)),
            other => other,
        };
        let is_header = HeaderName::from_lowercase(name.as_bytes()).is_ok();
        let name = if is_header {
            ConstantName::Header(HeaderName::from_static(name))
        } else {
            ConstantName::Pseudo(name)
        };
        Self { name, field }
    }
}

#[cfg(test)]
mod tests {
    use brisk_wire::fields::Name;

    use super::*;

    fn compare<T: StaticTable>(fields: &[(&str, &str)], first: usize) {
        assert_eq!(T::fields().len(), first + fields.len());
        for (index, (name, value)) in (first..).zip(fields) {
            let literal = format!("{:?}", Field::literal::<T>(&Name::New(name.as_bytes()), value.as_bytes()));
            let constant = format!("{:?}", Field::constant::<T>(index));
            let named = format!("{:?}", Field::literal::<T>(&Name::Constant(index), value.as_bytes()));
            assert_eq!((&constant, &named), (&literal, &literal), "{name}");
        }
        let beyond = first + fields.len();
        assert!(matches!(Field::constant::<T>(beyond), Field::Malformed(None)));
        assert!(matches!(Field::literal::<T>(&Name::Constant(beyond), b"x"), Field::Malformed(None)));
    }

    #[test]
    fn constants_are_read_as_literals_are() {
        compare::<Hpack>(&hpack::CONSTANTS, 1);
        compare::<Qpack>(&qpack::CONSTANTS, 0);
        assert!(matches!(Field::constant::<Hpack>(0), Field::Malformed(None)));
    }

    #[test]
    fn a_name_of_the_table_takes_other_values() {
        let authority = Field::literal::<Hpack>(&Name::Constant(1), b"a.example");
        assert!(
            matches!(&authority, Field::Authority(authority) if authority == "a.example"),
            "{authority:?}"
        );
        let cookie = Field::literal::<Qpack>(&Name::Constant(5), b"a=1");
        assert!(
            matches!(&cookie, Field::Header(name, value) if name == "cookie" && value == "a=1"),
            "{cookie:?}"
        );
    }
}
