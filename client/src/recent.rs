//! A table that forgets the oldest of what it was given.

use std::collections::{HashMap, VecDeque};

/// Things by name, at most so many.
#[derive(Debug)]
pub(crate) struct Recent<T> {
    most: usize,
    things: HashMap<String, T>,
    order: VecDeque<String>,
}

impl<T> Recent<T> {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            things: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.things.get(name)
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        self.things.get_mut(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &T)> {
        self.things.iter()
    }

    /// The thing of this name, made if it is not there.
    pub(crate) fn entry(&mut self, name: &str, make: impl FnOnce() -> T) -> &mut T {
        if !self.things.contains_key(name) {
            if self.order.len() >= self.most
                && let Some(oldest) = self.order.pop_front()
            {
                self.things.remove(&oldest);
            }
            self.order.push_back(name.to_owned());
        }
        self.things.entry(name.to_owned()).or_insert_with(make)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let mut recent = Recent::new(2);
        for name in ["a", "b", "a", "c"] {
            recent.entry(name, || name.to_owned());
        }
        assert!(recent.get("a").is_none());
        assert!(recent.get("b").is_some() && recent.get("c").is_some());
        assert_eq!(recent.iter().count(), 2);
    }
}
