//! Tables whose keys belong to several structs, one for each feature.

/// Name under which [`table_of_parts!`](crate::table_of_parts) reads a table. The [`Document`](crate::Document) gives each field of
/// such a struct the keys of the table that the struct of the field has; a key that none of them has is unknown.
#[doc(hidden)]
pub const PARTS: &str = "a table of parts";

/// Defines a struct for a table of the configuration. Each field is a part: a struct with some of the keys of the table, or again a
/// table of parts. Parts refuse unknown keys, and have a default unless they have a required key.
///
/// A table of parts can be read from a [`Document`](crate::Document) only, which looks at the table once for each part.
#[macro_export]
macro_rules! table_of_parts {
    (
        $(#[$about:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$field_about:meta])* pub $field:ident: $part:ty,)*
        }
    ) => {
        $(#[$about])*
        $visibility struct $name {
            $($(#[$field_about])* pub $field: $part,)*
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Parts;
                impl<'de> ::serde::de::Visitor<'de> for Parts {
                    type Value = $name;

                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        f.write_str("a table")
                    }

                    fn visit_seq<A: ::serde::de::SeqAccess<'de>>(self, mut parts: A) -> Result<$name, A::Error> {
                        $(
                            let Some($field) = parts.next_element()? else {
                                return Err(::serde::de::Error::custom("tables of parts are read from a document"));
                            };
                        )*
                        Ok($name { $($field,)* })
                    }
                }
                deserializer.deserialize_struct($crate::PARTS, &[], Parts)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use crate::{Document, Located};

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub(super) struct Size {
        size: Option<u8>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Name {
        name: String,
        #[serde(default)]
        list: Vec<u8>,
    }

    table_of_parts! {
        #[derive(Debug, Default)]
        pub(super) struct Inner {
            pub size: Size,
        }
    }

    table_of_parts! {
        #[derive(Debug, Default)]
        pub(super) struct Table {
            pub name: Name,
            pub inner: Inner,
        }
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct File {
        table: Vec<Table>,
    }

    fn read(text: &str) -> (Vec<Table>, Vec<Located>) {
        let (File { table }, problems) = Document::parse(text).expect("TOML").read();
        (table, problems)
    }

    #[test]
    fn each_part_gets_its_keys() {
        let (tables, problems) = read("[[table]]\nsize = 3\nname = \"a\"\nlist = [1]\n");
        assert!(problems.is_empty(), "{problems:?}");
        let [table] = &tables[..] else { panic!("{tables:?}") };
        assert_eq!((&*table.name.name, &*table.name.list, table.inner.size.size), ("a", &[1][..], Some(3)));
    }

    #[test]
    fn every_mistake_in_a_part_has_its_place() {
        let (_, problems) =
            read("[[table]]\nsize = 3\n[[table]]\nname = \"b\"\nsize = 300\nlist = [1, true]\nother = 1\n");
        let mut places: Vec<_> = problems.iter().map(|problem| problem.path.to_string()).collect();
        places.sort();
        assert_eq!(places, ["table[0]", "table[1].list[1]", "table[1].other", "table[1].size"]);
    }
}
