//! Prompts that mean nothing but look like what they claim to be, the same for the same seed.
//!
//! Real prompts are in no trace, and random bytes would be counted wrongly by every estimator.

use rand::Rng;
use rand::seq::IndexedRandom as _;

use super::mix::Language;

const ENGLISH: &[&str] = &[
    "the",
    "of",
    "and",
    "a",
    "to",
    "in",
    "is",
    "that",
    "for",
    "with",
    "on",
    "as",
    "by",
    "this",
    "from",
    "at",
    "or",
    "an",
    "be",
    "not",
    "please",
    "explain",
    "summary",
    "customer",
    "order",
    "delivery",
    "question",
    "because",
    "however",
    "result",
    "system",
    "measure",
    "between",
    "weather",
    "garden",
    "music",
    "history",
    "travel",
    "budget",
    "meeting",
    "schedule",
    "kitchen",
    "although",
    "important",
    "difference",
    "language",
    "paragraph",
    "describe",
    "compare",
    "river",
];
const CHINESE: &[&str] = &[
    "请",
    "帮",
    "我",
    "写",
    "一",
    "个",
    "关于",
    "天气",
    "的",
    "说明",
    "谢谢",
    "问题",
    "客户",
    "订单",
    "时间",
    "比较",
    "两",
    "种",
    "方法",
    "不同",
    "城市",
    "历史",
    "音乐",
    "旅行",
    "计划",
    "需要",
    "多少",
    "价格",
    "为什么",
    "如何",
    "系统",
    "服务",
    "结果",
    "可以",
    "学习",
    "语言",
];
const CODE: &[&str] = &[
    "let ",
    "mut ",
    "fn ",
    "return ",
    "if ",
    "else ",
    "for ",
    "while ",
    "(",
    ")",
    "{\n    ",
    "}\n",
    ";\n",
    " = ",
    " == ",
    " + ",
    "[",
    "]",
    "->",
    "\"",
    "count",
    "index",
    "value",
    "items",
    "user_id",
    "config",
    "request",
    "self.",
    "None",
    "true",
    "0",
    "1",
    "42",
    "// note\n",
    "len()",
    "push(",
    "import ",
    "class ",
    "def ",
    "async ",
    "await ",
];

/// How long a token is taken to be when a prompt is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextUnit {
    /// Four bytes, whatever the language.
    #[default]
    Quarter,
    /// One byte: exact against an engine that counts bytes.
    Byte,
    /// The mean of common tokenizers for each language.
    Real,
}

impl TextUnit {
    fn bytes(self, tokens: usize, language: Language) -> usize {
        let per_token = match (self, language) {
            (Self::Byte, _) => 1.0,
            (Self::Quarter, _) => 4.0,
            (Self::Real, Language::English) => 5.0,
            (Self::Real, Language::Chinese) => 4.5,
            (Self::Real, Language::Code) => 3.3,
        };
        (tokens as f64 * per_token).round() as usize
    }
}

/// A text of about `tokens` tokens: exactly as many bytes as the unit asks for.
pub fn text(language: Language, unit: TextUnit, tokens: usize, rng: &mut impl Rng) -> String {
    let bytes = unit.bytes(tokens, language);
    let (words, gap) = match language {
        Language::English => (ENGLISH, " "),
        Language::Chinese => (CHINESE, ""),
        Language::Code => (CODE, ""),
    };
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        text.push_str(words.choose(rng).unwrap_or(&"x"));
        text.push_str(gap);
    }
    while text.len() > bytes {
        text.pop();
    }
    // A character of three bytes may not fit.
    text.extend(std::iter::repeat_n('.', bytes - text.len()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;
    use rand::rngs::SmallRng;

    #[test]
    fn texts_are_exact_in_length_and_the_same_for_the_same_seed() {
        for language in [Language::English, Language::Chinese, Language::Code] {
            let make = || {
                let mut rng = SmallRng::seed_from_u64(7);
                text(language, TextUnit::Quarter, 101, &mut rng)
            };
            assert_eq!(make().len(), 404);
            assert_eq!(make(), make());
        }
    }
}
