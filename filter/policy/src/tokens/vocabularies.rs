//! The vocabularies that are ready to count with.
//!
//! Making the tables of one takes some ten milliseconds and some megabytes, so they are made when a
//! policy first names it, never on a request, and all gates of an instance share them.

use std::cell::RefCell;
use std::rc::Rc;

use super::{Vocabulary, vocabularies};

/// A handle on the vocabularies of one instance; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Vocabularies(Rc<RefCell<Vec<Rc<Vocabulary>>>>);

impl Vocabularies {
    /// Makes the tables of a vocabulary that is compiled in, unless they are there. False where it is
    /// not compiled in, or its data are damaged.
    pub fn prepare(&self, name: &str) -> bool {
        if self.get(name).is_some() {
            return true;
        }
        let file = vocabularies().iter().find(|(built_in, _)| *built_in == name);
        let made = file.and_then(|(_, bytes)| Vocabulary::from_bytes(bytes).ok());
        made.is_some_and(|vocabulary| self.add(vocabulary))
    }

    /// Adds a vocabulary that was made elsewhere. False if it could not be added.
    pub fn add(&self, vocabulary: Vocabulary) -> bool {
        let Ok(mut list) = self.0.try_borrow_mut() else { return false };
        list.push(Rc::new(vocabulary));
        true
    }

    /// The vocabulary of this name, if it is ready.
    pub fn get(&self, name: &str) -> Option<Rc<Vocabulary>> {
        let list = self.0.try_borrow().ok()?;
        list.iter().find(|vocabulary| vocabulary.name() == name).cloned()
    }
}
