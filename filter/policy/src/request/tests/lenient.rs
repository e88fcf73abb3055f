//! The lenient whole numbers and booleans, value by value.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use crate::request::lax::{Misfit, boolean_from_text, whole, whole_from_text};

#[test]
fn numeric_strings_are_taken_as_the_engine_takes_them() {
    for (text, value) in [
        ("2", 2),
        (" 2 ", 2),
        ("\u{a0}2\u{3000}", 2),
        ("+2", 2),
        ("-2", -2),
        ("007", 7),
        ("1_000", 1000),
        ("1_000.0", 1000),
        ("-0", 0),
        ("0.000", 0),
    ] {
        assert_eq!(whole_from_text(text), Ok(value), "{text:?}");
    }
    for text in [
        "", " ", "+", "-", "_2", "2_", "2__0", "+_2", "2.", ".0", ".", "2.5", "2.0_0", "2e0",
        "+-2", "+ 2", "0x2", "٢", "nan", "2 0", "\u{1c}2",
    ] {
        assert_eq!(whole_from_text(text), Err(Misfit::Type), "{text:?}");
    }
    let nines = "9".repeat(19);
    for text in [nines.as_str(), &"0".repeat(65)] {
        assert_eq!(whole_from_text(text), Err(Misfit::Range), "{text:?}");
    }
}

#[test]
fn numbers_are_whole_only_without_a_fraction() {
    assert_eq!(whole("2", true), Ok(2));
    assert_eq!(whole("-0.0", false), Ok(0));
    assert_eq!(whole("2000e-3", false), Ok(2));
    assert_eq!(whole("2.5", false), Err(Misfit::Type));
    for text in ["1e300", "1e400", "-1e400", "9007199254740994.0"] {
        assert_eq!(whole(text, false), Err(Misfit::Range), "{text}");
    }
    assert_eq!(whole("99999999999999999999", true), Err(Misfit::Range));
}

#[test]
fn booleans_are_words_in_any_case() {
    for text in ["true", "T", "YES", "y", "On", "1"] {
        assert_eq!(boolean_from_text(text), Some(true), "{text}");
    }
    for text in ["False", "f", "no", "N", "off", "0"] {
        assert_eq!(boolean_from_text(text), Some(false), "{text}");
    }
    for text in ["", " true", "1.0", "ye", "of", "null", "2"] {
        assert_eq!(boolean_from_text(text), None, "{text:?}");
    }
}
