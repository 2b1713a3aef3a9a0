//! A few things by their keys: where there is no room, the one that was not used for longest goes.

use std::collections::HashMap;
use std::hash::Hash;

/// At most so many values, each with the number of the look that found it last.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    most: usize,
    looks: u64,
    kept: HashMap<K, (u64, V)>,
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    /// Room for at least one.
    pub(super) fn new(most: usize) -> Self {
        Self { most, looks: 0, kept: HashMap::new() }
    }

    /// The value of a key, if it is there.
    pub(super) fn find(&mut self, key: &K) -> Option<&V> {
        self.looks += 1;
        let (used, value) = self.kept.get_mut(key)?;
        *used = self.looks;
        Some(value)
    }

    /// Makes room for one more.
    pub(super) fn make_room(&mut self) {
        if self.kept.len() < self.most {
            return;
        }
        let oldest = self.kept.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
        oldest.and_then(|key| self.kept.remove(&key));
    }

    /// Keeps a value, for which there is room.
    pub(super) fn insert(&mut self, key: K, value: V) {
        self.kept.insert(key, (self.looks, value));
    }

    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::Recent;

    #[test]
    fn the_one_that_was_not_used_for_longest_goes() {
        let mut kept = Recent::new(2);
        for key in ["a", "b", "a", "c", "a", "b"] {
            if kept.find(&key).is_none() {
                kept.make_room();
                kept.insert(key, key.to_uppercase());
            }
        }
        // "c" made "b" go, and that "c".
        assert_eq!(["a", "b", "c"].map(|key| kept.find(&key).is_some()), [true, true, false]);
        kept.clear();
        assert!(kept.find(&"a").is_none());
    }
}
