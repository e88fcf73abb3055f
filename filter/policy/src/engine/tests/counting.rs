//! Which counter and which template a model's prompts get.

use super::*;
use crate::config::Tokenizer;
use crate::tokens::exact::{Family, Rules, VocabularySource};
use crate::tokens::{Template, Vocabulary};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// A policy whose first model counts with a vocabulary of this name.
fn with_vocabulary(name: &str) -> Rc<Policy> {
    let mut policy = Rc::into_inner(policy(9, "")).expect("the only one");
    policy.models[0].tokenizer = Tokenizer::Vocabulary(name.to_owned());
    policy.models[0].template = Template { thinking: false, ..Template::DEEPSEEK_V4 };
    Rc::new(policy)
}

/// A vocabulary without merges: every byte is a token.
fn bytes() -> Vocabulary {
    let rules = Rules { family: Family::DeepSeek, digits: 3, cjk: true, marks: true };
    let source = VocabularySource {
        name: "bytes".to_owned(),
        rules,
        classes: vec![(0x11_0000, 1)],
        added: Vec::new(),
        wholes: Vec::new(),
        merges: Vec::new(),
    };
    Vocabulary::from_bytes(&source.to_bytes()).expect("a vocabulary")
}

fn counted(gate: &mut Gate, body: &[u8]) -> Value {
    let stream = gate.admitted("shop-key", body);
    gate.respond(stream, 200, false);
    gate.end(stream, Ending::Complete)["context_len"].clone()
}

#[test]
fn a_model_with_a_vocabulary_is_counted_with_it_and_its_own_template() {
    let mut gate = Gate::new(&with_vocabulary("bytes"));
    assert!(gate.engine.vocabularies.add(bytes()));
    let body = br#"{"messages":[{"content":"\u00e9t\u00e9","role":"user"}],"model":"big"}"#;
    assert_eq!(counted(&mut gate, body), 5 + 4);
    // The other model is estimated as before.
    assert_eq!(counted(&mut gate, &chat("lite")), 1 + 4);
}

#[test]
fn a_vocabulary_that_is_not_there_leaves_an_estimate() {
    let mut gate = Gate::new(&with_vocabulary("gone"));
    assert_eq!(counted(&mut gate, &chat("big")), 1 + 4);
}
