//! Classes of the bytes that an SSD beside a target holds.

use crate::ibridge::Class;
use std::fmt;

/// Class of bytes on an SSD: the reason why they are there, and the quota that they count against.
///
/// The numbers are part of the fragment log's format and never change their meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataClass(u8);

/// Names by number.
const NAMES: [&str; DataClass::COUNT] = ["fragment", "random", "cached"];

impl DataClass {
    /// Number of classes.
    pub const COUNT: usize = 3;
    /// Small pieces of requests that span several datafiles.
    pub const FRAGMENT: Self = Self(0);
    /// Small requests of one piece.
    pub const RANDOM: Self = Self(1);
    /// Bytes of the read and write cache.
    pub const CACHED: Self = Self(2);
    /// All classes, in the order of [`DataClass::index`].
    pub const ALL: [Self; Self::COUNT] = [Self::FRAGMENT, Self::RANDOM, Self::CACHED];

    /// Returns the class with a number; `None` if there is none.
    pub const fn from_number(number: u8) -> Option<Self> {
        if (number as usize) < Self::COUNT { Some(Self(number)) } else { None }
    }

    /// Returns the number in the format of the fragment log.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns the index in arrays with one value per class.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the name in reports.
    pub const fn name(self) -> &'static str {
        NAMES[self.0 as usize]
    }
}

impl From<Class> for DataClass {
    fn from(class: Class) -> Self {
        match class {
            Class::Fragment => Self::FRAGMENT,
            Class::Random => Self::RANDOM,
        }
    }
}

impl fmt::Debug for DataClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for DataClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_belong_together() {
        for (index, class) in DataClass::ALL.into_iter().enumerate() {
            assert_eq!((class.index(), DataClass::from_number(class.number())), (index, Some(class)));
        }
        assert_eq!(DataClass::from_number(DataClass::COUNT as u8), None);
        assert_eq!(DataClass::from(Class::Random).name(), Class::Random.word());
        assert_eq!(DataClass::from(Class::Fragment).name(), Class::Fragment.word());
    }
}
