//! Lookup of names in a static table.

/// Places of [`Names`]: a power of two, most of them free.
const PLACES: usize = 256;

/// The first field of each name of a static table: its index plus one, 0 where there is none, at the place of the name's
/// hash or behind it.
pub(crate) struct Names([u8; PLACES]);

impl Names {
    pub(crate) const fn new(table: &[(&str, &str)]) -> Self {
        let mut places = [0; PLACES];
        let mut number = table.len();
        // From the end, so that of equal names the first is found first.
        while number > 0 {
            number -= 1;
            let mut at = hash(table[number].0.as_bytes());
            let mut placed = number as u8 + 1;
            // The earlier entry takes the place of the later one, which moves on.
            while placed != 0 {
                let there = places[at];
                places[at] = placed;
                placed = there;
                at = (at + 1) % PLACES;
            }
        }
        Self(places)
    }

    /// The first field of `table` with this name, counted from 0.
    pub(crate) fn find(&self, table: &[(&str, &str)], name: &[u8]) -> Option<usize> {
        if name.is_empty() {
            return None;
        }
        let mut at = hash(name);
        // The search ends at a free place. There is always one, since most places are free.
        loop {
            let place = usize::from(self.0[at]).checked_sub(1)?;
            if table[place].0.as_bytes() == name {
                return Some(place);
            }
            at = (at + 1) % PLACES;
        }
    }
}

const fn hash(name: &[u8]) -> usize {
    let (first, last) = (name[0] as usize, name[name.len() - 1] as usize);
    let middle = name[name.len() / 2] as usize;
    (name.len() * 5 + first * 3 + last * 11 + middle * 17) % PLACES
}
