//! Two files as one tree.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::error::KeyPath;

/// A key or table that two files have, with the positions of both.
pub(crate) struct Twice {
    pub(crate) path: KeyPath,
    pub(crate) first: usize,
    pub(crate) second: usize,
}

/// `value` with all positions `by` bytes later.
pub(crate) fn moved<'t>(value: Spanned<DeValue<'t>>, by: usize) -> DeValue<'t> {
    let each = |value: Spanned<DeValue<'t>>| {
        let span = later(value.span(), by);
        Spanned::new(span, moved(value, by))
    };
    match value.into_inner() {
        DeValue::Array(list) => DeValue::Array(list.into_iter().map(each).collect()),
        DeValue::Table(table) => {
            let key = |key: Spanned<_>| Spanned::new(later(key.span(), by), key.into_inner());
            DeValue::Table(table.into_iter().map(|(name, value)| (key(name), each(value))).collect())
        }
        other => other,
    }
}

fn later(span: Range<usize>, by: usize) -> Range<usize> {
    span.start + by..span.end + by
}

/// Adds the tables of a further file to those of the files before it. The result is everything that both have and must not.
pub(crate) fn merge<'t>(tables: &mut DeTable<'t>, further: DeTable<'t>) -> Vec<Twice> {
    let mut twice = Vec::new();
    for (key, value) in further {
        let path = KeyPath::of(key.get_ref());
        let present = tables.get(key.get_ref().as_ref()).map(Spanned::get_ref);
        match (present, value.get_ref()) {
            // Only lists of tables are joined. A list of values, such as `https`, is one setting, and has to
            // be in one file.
            (Some(DeValue::Array(list)), DeValue::Array(more))
                if of_tables(&**list) && of_tables(&**more) =>
            {
                append(tables, &key, value);
            }
            (Some(DeValue::Table(named)), DeValue::Table(more))
                if of_tables(named.values()) && of_tables(more.values()) =>
            {
                add(tables, &key, value, &path, &mut twice);
            }
            _ => insert(tables, (key, value), path, &mut twice),
        }
    }
    twice
}

type Key<'t> = Spanned<DeString<'t>>;
type Value<'t> = Spanned<DeValue<'t>>;

fn append<'t>(tables: &mut DeTable<'t>, key: &Key<'t>, value: Value<'t>) {
    let present = tables.get_mut(key.get_ref().as_ref()).map(Spanned::get_mut);
    if let (Some(DeValue::Array(list)), DeValue::Array(more)) = (present, value.into_inner()) {
        more.into_iter().for_each(|value| list.push(value));
    }
}

fn add<'t>(
    tables: &mut DeTable<'t>,
    key: &Key<'t>,
    value: Value<'t>,
    path: &KeyPath,
    twice: &mut Vec<Twice>,
) {
    let present = tables.get_mut(key.get_ref().as_ref()).map(Spanned::get_mut);
    if let (Some(DeValue::Table(named)), DeValue::Table(more)) = (present, value.into_inner()) {
        for (name, value) in more {
            let path = path.key(name.get_ref());
            insert(named, (name, value), path, twice);
        }
    }
}

fn insert<'t>(
    table: &mut DeTable<'t>,
    (key, value): (Key<'t>, Value<'t>),
    path: KeyPath,
    twice: &mut Vec<Twice>,
) {
    // `insert` would replace the value of the earlier file, and the operator would not learn about it.
    if let Some((present, _)) = table.get_key_value(key.get_ref().as_ref()) {
        twice.push(Twice { path, first: present.span().start, second: key.span().start });
    } else {
        table.insert(key, value);
    }
}

fn of_tables<'v, 't: 'v>(values: impl IntoIterator<Item = &'v Spanned<DeValue<'t>>>) -> bool {
    values.into_iter().all(|value| value.get_ref().is_table())
}
