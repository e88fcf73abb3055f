//! Whole requests: which texts reach the counter, joined how, and what is beside them.
//!
//! The expected prompts are those of vLLM's own encoder.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;
use crate::request::{self, Endpoint};
use crate::testing::Texts;

const DEEPSEEK: Template = Template::DEEPSEEK_V4;

fn count_at(endpoint: Endpoint, template: &Template, body: &str) -> (Vec<String>, u64, bool) {
    let read = request::read(endpoint, body.as_bytes()).unwrap();
    let mut texts = Texts::default();
    let count = template.count(&read, &mut texts);
    (texts.0, count.fixed, count.exact)
}

fn chat(body: &str) -> (Vec<String>, u64, bool) {
    count_at(Endpoint::ChatCompletions, &DEEPSEEK, body)
}

/// A chat of these messages, with thinking off; it must be exact.
fn messages(messages: &str) -> (Vec<String>, u64) {
    let off = r#""chat_template_kwargs":{"thinking":false}"#;
    let (texts, fixed, exact) = chat(&format!(r#"{{{off},"messages":[{messages}]}}"#));
    assert!(exact, "{messages}");
    (texts, fixed)
}

#[test]
fn an_exchange_costs_four_tokens_beside_its_texts() {
    let question = r#"{"role":"user","content":"a"}"#;
    let answer = r#"{"role":"assistant","content":"b\n"}"#;
    assert_eq!(messages(question), (vec!["a".to_owned()], 4));
    let (texts, fixed) = messages(&format!("{question},{answer},{question}"));
    assert_eq!((texts.concat(), fixed), ("ab\na".to_owned(), 8));
    // No reply is asked for behind an answer.
    assert_eq!(messages(&format!("{question},{answer}")).1, 5);
}

#[test]
fn thinking_is_on_with_high_effort_where_nothing_is_said() {
    let system = r#"{"role":"system","content":"\nS"}"#;
    let user = r#"{"role":"user","content":"a"}"#;
    let (texts, fixed, exact) = chat(&format!(r#"{{"messages":[{system},{user}]}}"#));
    assert_eq!((texts, fixed, exact), (vec![".\n\n\nS".to_owned(), "a".to_owned()], 4 + 78, true));
}

#[test]
fn thinking_and_effort_follow_the_request_before_the_policy() {
    let cost = |template: &Template, fields: &str| {
        let body = format!(r#"{{{fields}"messages":[{{"role":"user","content":"a"}}]}}"#);
        count_at(Endpoint::ChatCompletions, template, &body).1 - 4
    };
    for (fields, words) in [
        ("", 78),
        (r#""reasoning_effort":"high","#, 78),
        (r#""reasoning_effort":"xhigh","#, 78),
        (r#""reasoning_effort":"max","#, 91),
        (r#""reasoning_effort":"medium","#, 0),
        (r#""reasoning_effort":"none","#, 0),
        (r#""reasoning_effort":null,"#, 78),
        (r#""chat_template_kwargs":{"thinking":false},"#, 0),
        (r#""chat_template_kwargs":{"thinking":[ ]},"#, 0),
        (r#""chat_template_kwargs":{"thinking":0.0},"#, 0),
        (r#""chat_template_kwargs":{"thinking":"false"},"#, 78),
        (r#""chat_template_kwargs":{"thinking":null},"#, 78),
        (r#""chat_template_kwargs":{"thinking":false,"enable_thinking":true},"#, 78),
        (r#""chat_template_kwargs":{"reasoning_effort":"max"},"#, 91),
        (r#""chat_template_kwargs":{"reasoning_effort":"max"},"reasoning_effort":"high","#, 78),
        (r#""chat_template_kwargs":{"thinking":false},"reasoning_effort":"max","#, 91),
        (
            r#""chat_template_kwargs":{"thinking":0,"enable_thinking":null},"reasoning_effort":"max","#,
            0,
        ),
    ] {
        assert_eq!(cost(&DEEPSEEK, fields), words, "{fields}");
    }
    let quiet = Template { thinking: false, ..DEEPSEEK };
    assert_eq!(cost(&quiet, ""), 0);
    assert_eq!(cost(&quiet, r#""reasoning_effort":"max","#), 91);
    let eager = Template { effort: Some(Effort::Max), ..DEEPSEEK };
    assert_eq!(cost(&eager, ""), 91);
    assert_eq!(cost(&eager, r#""reasoning_effort":"low","#), 0);
}

#[test]
fn tools_stand_behind_the_first_system_text_as_python_writes_them() {
    let tools = r#""tools":[{"type":"function","function":{"parameters":{"a":[1,2.50,"\u4e2d\t"]},
        "name":"f","strict":null,"x":1}},{"type":"function","function":{"name":"g","strict":"yes",
        "description":"d"},"defer_loading":true}]"#;
    let expected = [
        "{\"name\": \"f\", \"description\": null, \"parameters\": {\"a\": [1, 2.5, \"中\\t\"]}}\n\
         {\"name\": \"g\", \"description\": \"d\", \"parameters\": null, \"strict\": true, \
         \"defer_loading\": true}\n\n",
        ".\n",
    ];
    let off = r#""reasoning_effort":"none""#;
    let user = r#"{"role":"user","content":"u"}"#;
    let (texts, fixed, exact) = chat(&format!(
        r#"{{"messages":[{user},{{"role":"system","content":"s"}}],{tools},{off}}}"#
    ));
    assert_eq!(texts, ["us\n\n", expected[0], expected[1]]);
    assert_eq!((fixed, exact), (1 + 1 + 220 + 2, true));
    // Where there is no system text, they come first, with the same glue.
    let (texts, fixed, _) = chat(&format!(r#"{{{off},{tools},"messages":[{user}]}}"#));
    assert_eq!(texts, ["\n\n", expected[0], expected[1], "u"]);
    assert_eq!(fixed, 4 + 220);
}

#[test]
fn a_tool_that_is_no_function_makes_the_count_an_estimate() {
    let body = r#"{"messages":[{"role":"user","content":"u"}],"tools":[{"type":"web_search"}]}"#;
    let (texts, _, exact) = chat(body);
    assert!(texts.concat().contains("web_search") && !exact);
}

#[test]
fn neighbouring_user_and_tool_messages_are_one_turn() {
    let (texts, fixed) = messages(
        r#"{"role":"tool","content":[{"type":"text","text":"r"},{"type":"text","text":"s"}]},
           {"content":[{"type":"text","text":"a"},"",{"type":"text","text":"b"}],"role":"user"},
           {"role":"user","content":""},{"role":"tool","tool_call_id":"x","content":null}"#,
    );
    let turn = "<tool_result>r\ns</tool_result>\n\na\n\n\n\nb\n\n\n\n<tool_result></tool_result>";
    assert_eq!((texts, fixed), (vec![turn.to_owned()], 4));
}

#[test]
fn calls_stand_behind_the_reply_with_their_arguments_one_by_one() {
    let call = |arguments: &str| {
        let calls = format!(r#"[{{"function":{{"arguments":{arguments},"name":"f\u0022"}}}}]"#);
        let message = format!(r#"{{"role":"assistant","tool_calls":{calls},"content":"c"}}"#);
        let (texts, _, exact) = chat(&format!(r#"{{"messages":[{message}]}}"#));
        (texts.concat(), exact)
    };
    let around = |inside: &str| {
        let begin = ".\n\nc\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\"\">\n";
        format!("{begin}{inside}\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>")
    };
    let whole = "<｜DSML｜parameter name=\"a\" string=\"true\">x\ny</｜DSML｜parameter>\n\
                 <｜DSML｜parameter name=\"b\" string=\"false\">{\"k\": 1e-05}</｜DSML｜parameter>";
    assert_eq!(call(r#""{\"a\":\"x\\ny\", \"b\":{\"k\":0.00001}}""#), (around(whole), true));
    assert_eq!(call(r#"{"a":"x\ny","b":{"k":0.00001}}"#), (around(whole), true));
    // What is no object is none to the engine either.
    for nothing in [r#""""#, "null", r#""{}""#, r#""[1]""#, r#""{\"a\":""#, r#""{\"a\":1}x""#] {
        assert_eq!(call(nothing), (around(""), true), "{nothing}");
    }
    // What only the engine's reader takes is counted as it stands.
    for odd in [r#"{\"a\":NaN}"#, r#"{\"a\":1,\"a\":2}"#] {
        let (text, exact) = call(&format!("\"{odd}\""));
        assert_eq!((text, exact), (around(&odd.replace('\\', "")), false), "{odd}");
    }
}

#[test]
fn reasoning_is_shown_where_the_engine_shows_it() {
    let body = |fields: &str| {
        let (texts, fixed, exact) = chat(&format!(
            r#"{{"messages":[{{"role":"user","content":"a"}},
            {{"role":"assistant","reasoning":"old","content":"b"}},{{"role":"user","content":"c"}},
            {{"role":"assistant","content":"d","reasoning_content":"n\u0065w"}}]{fields}}}"#
        ));
        assert!(exact);
        (texts.concat().trim_start_matches(".\n\n").to_owned(), fixed)
    };
    let markers = 1 + 2 * (3 + 1);
    assert_eq!(body(""), ("abcnewd".to_owned(), markers + 78 + 1));
    assert_eq!(body(r#","reasoning_effort":"none""#), ("abcd".to_owned(), markers));
    let all = body(r#","reasoning_effort":"low","chat_template_kwargs":{"drop_thinking":false}"#);
    assert_eq!(all, ("aoldbcnewd".to_owned(), markers + 2));
}

#[test]
fn earlier_developers_are_left_out_with_earlier_reasoning() {
    let early = r#"{"role":"developer","content":"early"},{"role":"user","content":"u"},"#;
    let late = r#"{"role":"developer","content":"late"}"#;
    let (texts, fixed, _) =
        chat(&format!(r#"{{"reasoning_effort":"low","messages":[{early}{late}]}}"#));
    assert_eq!((texts.concat(), fixed), ("ulate".to_owned(), 1 + 1 + 1 + 2));
    let (texts, fixed) = messages(&format!("{early}{late}"));
    assert_eq!((texts.concat(), fixed), ("earlyulate".to_owned(), 1 + 1 + 1 + 1 + 2));
}

#[test]
fn a_line_of_billing_is_left_out_of_system_texts() {
    let system = |text: &str| {
        messages(&format!(
            r#"{{"role":"system","content":[{{"type":"text","text":"{text}"}},"s"]}}"#
        ))
        .0
    };
    assert_eq!(system("x-anthropic-billing-header: v=1;"), ["s"]);
    assert_eq!(system(r"\u0078-anthropic-billing-header: v=1;\nrest"), ["rest\n\ns"]);
    assert_eq!(
        system("about x-anthropic-billing-header"),
        ["about x-anthropic-billing-header\n\ns"]
    );
}

#[test]
fn tasks_and_reminders_have_markers_of_their_own() {
    let ask = |task: &str| format!(r#"{{"role":"user","content":"a","task":"{task}"}}"#);
    assert_eq!(messages(&ask("action")).1, 1 + 1 + 3);
    assert_eq!(messages(&ask("title")).1, 1 + 1 + 1);
    let reminder = r#"{"role":"latest_reminder","content":"r"},{"role":"user","content":"a"}"#;
    assert_eq!(messages(reminder).1, 1 + 1 + 3);
}

#[test]
fn prompts_are_exact_under_any_template() {
    for template in [&DEEPSEEK, &Template::GENERIC] {
        let count = |body: &str| count_at(Endpoint::Completions, template, body);
        let (texts, fixed, exact) = count(r#"{"prompt":["a\n","b"]}"#);
        assert_eq!((texts.concat(), fixed, exact), ("a\nb".to_owned(), 0, true));
        assert_eq!(count(r#"{"prompt":[1,2,3]}"#), (vec![], 3, true));
        assert_eq!(count(r#"{"prompt":[[1,2],[3]]}"#), (vec![], 3, true));
        assert!(!count(r#"{"prompt":"a","prompt_embeds":"x"}"#).2);
        assert!(!count(r#"{"prompt":"a","truncate_prompt_tokens":1}"#).2);
    }
    let begun = Template { prompt_start: 1, ..DEEPSEEK };
    let fixed = |body: &str| count_at(Endpoint::Completions, &begun, body).1;
    assert_eq!(fixed(r#"{"prompt":["a","b",""]}"#), 3);
    assert_eq!(fixed(r#"{"prompt":["a","b"],"add_special_tokens":false}"#), 0);
}

#[test]
fn a_suffix_is_counted_for_every_prompt_with_three_markers() {
    let body = r#"{"prompt":["a","b"],"suffix":"s"}"#;
    let (texts, fixed, exact) = count_at(Endpoint::Completions, &DEEPSEEK, body);
    // The second time its tokens are known.
    assert_eq!((texts, fixed, exact), (["a", "b", "s"].map(str::to_owned).to_vec(), 6 + 1, true));
}

#[test]
fn images_and_sound_have_a_price_and_no_exact_count() {
    let priced = Template { image: 100, audio: 7, ..DEEPSEEK };
    let body = r#"{"reasoning_effort":"low","messages":[{"role":"user","content":[
        {"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}},
        {"type":"text","text":"b"},{"type":"input_audio","input_audio":{}}]}]}"#;
    let (texts, fixed, exact) = count_at(Endpoint::ChatCompletions, &priced, body);
    assert_eq!(texts, ["a\n\n", "\n\nb\n\n"]);
    assert_eq!((fixed, exact), (4 + 107, false));
}

#[test]
fn nothing_hides_where_a_request_asks_for_what_is_not_followed() {
    let long = "long ".repeat(40);
    for field in [
        format!(r#""chat_template_kwargs":{{"tools":["{long}"]}}"#),
        format!(r#""chat_template":"{long}""#),
    ] {
        let body = format!(r#"{{"messages":[{{"role":"user","content":"a"}}],{field}}}"#);
        let (texts, _, exact) = chat(&body);
        assert!(texts.concat().contains(&long) && !exact, "{field}");
    }
    for (endpoint, body) in [
        (Endpoint::Messages, format!(r#"{{"system":"{long}","max_tokens":1,"messages":[]}}"#)),
        (Endpoint::Responses, format!(r#"{{"instructions":"{long}","input":"x"}}"#)),
        (Endpoint::Embeddings, format!(r#"{{"input":["a","{long}"]}}"#)),
        (
            Endpoint::Messages,
            format!(
                r#"{{"max_tokens":1,"messages":[{{"role":"user","content":[{{"type":"tool_result",
                "content":[{{"type":"text","text":"{long}"}}]}}]}}]}}"#
            ),
        ),
    ] {
        let (texts, _, exact) = count_at(endpoint, &DEEPSEEK, &body);
        assert!(texts.concat().contains(&long) && !exact, "{body}");
    }
}

/// A value as Python writes it, and whether that is certain.
fn dumped(json: &str) -> (String, bool) {
    let mut texts = Texts::default();
    let mut run = run::Run::new(&mut texts);
    python::dump(json, &mut run).unwrap();
    run.end();
    let exact = run.exact;
    (texts.0.concat(), exact)
}

#[test]
fn json_comes_out_as_python_writes_it() {
    for (json, python) in [
        ("{ }", "{}"),
        ("[1,-0,-0.0,1E2,10000000000000000000000]", "[1, 0, -0.0, 100.0, 10000000000000000000000]"),
        ("[1e16,1e15,123456789012345680.0]", "[1e+16, 1000000000000000.0, 1.2345678901234568e+17]"),
        ("[0.0001,0.00001,1e-7,2.5e-310]", "[0.0001, 1e-05, 1e-07, 2.5e-310]"),
        ("[1e400,-1e400,5e-400]", "[Infinity, -Infinity, 0.0]"),
        (r#"{"a\/b":"\u00e9\u4e2d\ud83d\ude00"}"#, r#"{"a/b": "é中😀"}"#),
        (
            r#"["\"\\\n\r\t\b\f\u0000\u001f\u007f"]"#,
            "[\"\\\"\\\\\\n\\r\\t\\b\\f\\u0000\\u001f\u{7f}\"]",
        ),
        ("[true ,false,\nnull]", "[true, false, null]"),
    ] {
        assert_eq!(dumped(json), (python.to_owned(), true), "{json}");
    }
}

/// Is full after so many bytes.
#[derive(Debug)]
struct Bucket(usize, String);

impl TokenCounter for Bucket {
    fn text(&mut self, text: &str) {
        self.1.push_str(text);
    }

    fn tokens(&self) -> u64 {
        0
    }

    fn is_full(&self) -> bool {
        self.1.len() > self.0
    }
}

#[test]
fn long_json_is_counted_in_steps_and_as_it_stands_once_the_counter_is_full() {
    let list = vec!["1.50"; 40_000].join(",");
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":"a"}}],"tools":[
            {{"type":"function","function":{{"name":"f","parameters":{{"a":[{list}]}}}}}}]}}"#
    );
    let read = request::read(Endpoint::ChatCompletions, body.as_bytes()).unwrap();
    let whole = vec!["1.5"; 40_000].join(", ");
    for (room, careful) in [(usize::MAX, true), (50_000, false)] {
        let mut bucket = Bucket(room, String::new());
        DEEPSEEK.count(&read, &mut bucket);
        assert_eq!(bucket.1.contains(&whole), careful);
        assert!(bucket.1.contains("[1.5, 1.5") && bucket.1.contains("]}}\n\n.\na"));
    }
}

/// The texts of a reply with one call of these arguments.
fn called(name: &str, arguments: &str) -> (String, bool) {
    let text: String = arguments
        .chars()
        .flat_map(|char| match char {
            '"' | '\\' => vec!['\\', char],
            _ => vec![char],
        })
        .collect();
    let (texts, _, exact) = chat(&format!(
        r#"{{"messages":[{{"role":"assistant","tool_calls":[
            {{"function":{{"name":"{name}","arguments":"{text}"}}}}]}}]}}"#
    ));
    (texts.concat(), exact)
}

#[test]
fn long_arguments_that_prove_to_be_no_json_leave_nothing_behind() {
    for name in ["f", "ff", "fff"] {
        let broken = format!(r#"{{"a":["{}","{}"]"#, "x".repeat(32_768), "字".repeat(40));
        let (text, exact) = called(name, &broken);
        assert!(!text.contains('x') && !text.contains('字') && exact, "{name}");
        let (text, _) = called(name, &format!("{broken}}}"));
        assert!(text.contains("字\"]</｜DSML｜parameter>\n</｜DSML｜invoke>"), "{name}");
    }
}

#[test]
fn garbled_arguments_of_any_kind_are_counted_without_a_fault() {
    let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % 1_000_003).unwrap() % below
    };
    let words = ["字", "😀", "\\n", "\"", ",", "[", "]", "{", "}", ":", "\\u4e2d", "é", " ", "1e9"];
    for _ in 0..60 {
        let mut json = String::from("{\"a\":[");
        while json.len() < 70_000 {
            let (word, signs) = ("x".repeat(random(9_000)), "字".repeat(random(50)));
            json.extend(["\"", &word, &signs, "\","]);
        }
        json.push_str("1],\"b\":{\"c\":1.5}}");
        for _ in 0..random(3) {
            let at = json.floor_char_boundary(random(json.len()));
            json.insert_str(at, words[random(words.len())]);
        }
        if random(2) == 0 {
            json.truncate(json.floor_char_boundary(random(json.len())));
        }
        let good = python::arguments(&json, &mut |_, _, _| Ok(()));
        let (text, _) = called("f", &json);
        let written = text.contains("DSML｜parameter") || text.contains("\"a\":[");
        assert_eq!(written, !good.is_err_and(|error| !error.only_here()));
    }
}

#[test]
fn numbers_that_take_long_are_added_as_they_stand() {
    let long = "0.1000000000000000055511151231257827";
    assert_eq!(dumped(long), (long.to_owned(), false));
    assert_eq!(dumped("0.12345678901234567891"), ("0.12345678901234568".to_owned(), true));
    let list = format!("[{}]", vec!["8.41e-300"; 40_000].join(","));
    let (text, exact) = dumped(&list);
    assert!(!exact && text.len() >= list.len() + 39_999);
    assert!(dumped(r#"{"a":{"b":1,"c":{"b":2}},"b":3}"#).1);
    assert!(!dumped(r#"{"a":{"b":1,"\u0062":{"b":2}},"b":3}"#).1);
}

#[test]
fn messages_without_text_cost_their_markers() {
    let generic = |messages: &[String]| {
        let body = format!(r#"{{"messages":[{}]}}"#, messages.join(","));
        count_at(Endpoint::ChatCompletions, &Template::GENERIC, &body).1
    };
    let of = |role: &str, times: usize| vec![format!(r#"{{"role":"{role}"}}"#); times];
    // Ordinary chats: as many markers as turns.
    assert_eq!(generic(&of("user", 1)), 4);
    assert_eq!(generic(&[of("system", 1), of("user", 1), of("assistant", 1)].concat()), 5);
    let tools = [of("user", 1), of("assistant", 1), of("tool", 2)].concat();
    assert_eq!(generic(&tools), 1 + 3 + 1 + 3);
    for role in ["user", "assistant", "system", "other"] {
        assert!(generic(&of(role, 10_000)) >= 29_990, "{role}");
    }
}

#[test]
fn many_short_names_count_under_the_generic_template_only() {
    let body = |times: usize| {
        let message = format!(r#"{{"role":"user","content":"","name":"{}"}}"#, "x".repeat(98));
        format!(r#"{{"messages":[{}]}}"#, vec![message; times].join(","))
    };
    let count = |template: &Template, times: usize| {
        let body = body(times);
        let read = request::read(Endpoint::ChatCompletions, body.as_bytes()).unwrap();
        template.count(&read, &mut Texts::default())
    };
    assert_eq!(
        (count(&Template::GENERIC, 1).fixed, count(&Template::GENERIC, 1).unsure),
        (4, false)
    );
    let many = count(&Template::GENERIC, 100);
    assert_eq!((many.fixed, many.unsure), (4 + 98 * 3 + (10_000_u64 - 1024).div_ceil(3), true));
    let own = count(&DEEPSEEK, 100);
    assert!(own.exact && !own.unsure);
}

#[test]
fn counts_that_teach_nothing_say_so() {
    let count = |template: &Template, endpoint: Endpoint, body: &str| {
        let read = request::read(endpoint, body.as_bytes()).unwrap();
        template.count(&read, &mut Texts::default())
    };
    let long = "long ".repeat(40);
    for template in [&DEEPSEEK, &Template::GENERIC] {
        let chat = |fields: &str, part: &str| {
            let message = format!(r#"{{"role":"user","content":[{part}]}}"#);
            let body = format!(r#"{{{fields}"messages":[{message}]}}"#);
            count(template, Endpoint::ChatCompletions, &body)
        };
        assert!(!chat("", r#""a""#).unsure);
        let video = chat("", r#"{"type":"video_url","video_url":{"url":"x"}}"#);
        assert!(video.unsure && !video.exact && video.fixed >= 8 * 576);
        assert!(chat("", r#"{"type":"prompt_embeds","data":"x"}"#).fixed >= 8 * 576);
        assert!(chat(r#""truncate_prompt_tokens":5,"#, "").unsure);
        assert!(chat("", r#"{"type":"new"}"#).unsure);
        assert!(count(template, Endpoint::Completions, r#"{"prompt":[1,2]}"#).unsure);
        let system = format!(r#"{{"max_tokens":1,"messages":[],"metadata":"{long}"}}"#);
        assert!(!count(template, Endpoint::Messages, &system).unsure);
    }
    let named = format!(r#"{{"messages":[{{"role":"user","name":"{long}"}}]}}"#);
    assert!(count(&Template::GENERIC, Endpoint::ChatCompletions, &named).unsure);
    assert!(!count(&DEEPSEEK, Endpoint::ChatCompletions, &named).unsure);
}

#[test]
fn an_empty_reasoning_stands_before_one_of_the_old_name() {
    let of = |fields: &str| {
        chat(&format!(r#"{{"messages":[{{"role":"assistant","content":"a",{fields}}}]}}"#))
            .0
            .concat()
    };
    assert_eq!(of(r#""reasoning":"","reasoning_content":"r""#), ".\n\na");
    assert_eq!(of(r#""reasoning":null,"reasoning_content":"r""#), ".\n\nra");
    assert!(!chat(r#"{"messages":[]}"#).2);
}

/// Notes the longest text that was no part of the body.
#[derive(Debug)]
struct Copies<'a>(&'a str, usize, String);

impl TokenCounter for Copies<'_> {
    fn text(&mut self, text: &str) {
        if !self.0.as_bytes().as_ptr_range().contains(&text.as_ptr()) {
            self.1 = self.1.max(text.len());
        }
        self.2.push_str(text);
    }

    fn tokens(&self) -> u64 {
        1
    }

    fn is_exact(&self) -> bool {
        true
    }
}

#[test]
fn long_texts_that_are_joined_or_decoded_are_counted_in_steps() {
    let copies = |body: &str| {
        let read = request::read(Endpoint::ChatCompletions, body.as_bytes()).unwrap();
        let mut copies = Copies(body, 0, String::new());
        let exact = DEEPSEEK.count(&read, &mut copies).exact;
        (copies.1, exact, copies.2)
    };
    let prose = "some words\\nand 中文。\\n汉字 ".repeat(30_000);
    let plain = "word ".repeat(200_000);
    let user = |text: &str| format!(r#"{{"role":"user","content":"{text}"}}"#);
    let three = [user(&plain), user(&prose), user(&plain)].join(",");
    let (longest, exact, text) = copies(&format!(r#"{{"messages":[{three}]}}"#));
    assert!(longest <= 70_000 && exact, "{longest}");
    let decoded = prose.replace("\\n", "\n");
    assert_eq!(text, format!(".\n\n{plain}\n\n{decoded}\n\n{plain}"));
    // Without any place to cut the count says that it is not certain.
    let (longest, exact, text) =
        copies(&format!(r#"{{"messages":[{}]}}"#, user(&"\\n字".repeat(9))));
    assert!(longest < 99 && exact && text.ends_with("\n字"));
    let solid = user(&format!("\\n{}", "字".repeat(200_000)));
    let (longest, exact, _) = copies(&format!(r#"{{"messages":[{solid}]}}"#));
    assert!(longest <= 330_000 && !exact, "{longest}");
    // Fields of a tool that are not known, twice as long when written.
    let extras = "1,".repeat(400_000);
    let tool = format!(
        r#"{{"type":"function","function":{{"name":"f","x":[{extras}1],"y":"\n{plain}"}}}}"#
    );
    let message = format!(r#"{{"role":"developer","content":"a","tools":[{tool}]}}"#);
    let (longest, exact, text) = copies(&format!(r#"{{"messages":[{message}]}}"#));
    assert!(longest <= 70_000 && exact && text.contains("1, 1], \"y\": \"\\nword"), "{longest}");
}
