//! [`AssignedValues`] of one connection.

/// Maximum number of [`Assigned`] values per connection.
pub const MOST_ASSIGNED: usize = 4;

/// Identifier of a varied setting, valid during the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VariedId(pub u16);

/// Value of a varied setting that a connection has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assigned {
    /// The setting.
    pub setting: VariedId,
    /// Index of the value; 0 is the configured value.
    pub value: u8,
}

/// Values of a connection, one for each varied setting that it takes part in; at most [`MOST_ASSIGNED`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AssignedValues([Option<Assigned>; MOST_ASSIGNED]);

impl AssignedValues {
    /// Adds a value; returns `false` if there is no room.
    pub fn push(&mut self, value: Assigned) -> bool {
        // An array and no vector: the values are copied with each visit and cost no allocation.
        let free = self.0.iter_mut().find(|place| place.is_none());
        free.map(|place| *place = Some(value)).is_some()
    }

    /// Index of the value of `setting`, if the connection has one.
    pub fn get(&self, setting: VariedId) -> Option<u8> {
        self.iter().find(|one| one.setting == setting).map(|one| one.value)
    }

    /// A copy with the values of `settings` only.
    #[must_use]
    pub fn within(&self, settings: &[VariedId]) -> Self {
        Self(self.0.map(|one| one.filter(|one| settings.contains(&one.setting))))
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The values, in the order of [`push`](Self::push).
    pub fn iter(&self) -> impl Iterator<Item = Assigned> + '_ {
        self.0.iter().filter_map(|one| *one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_four_values_at_most() {
        let mut values = AssignedValues::default();
        let one = |number| Assigned { setting: VariedId(number), value: 1 };
        assert!((0..4).all(|number| values.push(one(number))));
        assert!(!values.push(one(4)));
        assert_eq!(values.iter().count(), 4);
        assert_eq!([2, 4].map(|number| values.get(VariedId(number))), [Some(1), None]);
        let within = values.within(&[VariedId(2), VariedId(9)]);
        assert_eq!((within.iter().count(), within.get(VariedId(2))), (1, Some(1)));
        assert!(values.within(&[]).is_empty() && !within.is_empty());
    }
}
