//! Rows and templates that can't be used, each refused with file, row and reason.

use proptest::prelude::*;

use super::*;
use crate::chat::row::Row;

/// What is said of a file of rows.
fn refused(name: &str, bytes: impl AsRef<[u8]>, config: &ChatsConfig<'_>) -> String {
    let folder = tempdir().unwrap();
    let path = file(&folder, name, bytes);
    match Chats::open(&[path], config) {
        Ok(_) => panic!("{name} was taken"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn bad_rows_are_refused_by_number() {
    let chatml = template("chatml");
    let of = |format| config(format, Some(&chatml));
    let message = |fields: &str| format!("{ROW}\n\n{{\"messages\": [{fields}]}}\n{ROW}");
    for (text, problem) in [
        (message(""), "`messages` is empty"),
        (
            message(r#"{"role": "usr", "content": "q"}"#),
            "message 1: its role is \"usr\", and may be",
        ),
        (message("3"), "message 1: it is a number, not an object"),
        (message(r#"{"role": "user"}"#), "message 1: it has no `content`"),
        (message(r#"{"role": 1, "content": ""}"#), "its `role` is a number, not a text"),
        (message(r#"{"role": "user", "content": {"a": 1}}"#), "its `content` is an object"),
        (
            message(r#"{"role": "user", "content": [{"type": "image_url"}]}"#),
            "a part of its `content` isn't text",
        ),
        (message(r#"{"role": "assistant", "content": "a", "weight": 0.5}"#), "its `weight` is 0.5"),
        (message(r#"{"role": "user", "content": "q"}"#), "no assistant turn to train on"),
        (format!("{ROW}\n[1, 2]"), "message 1: it is a number"),
        (format!("{ROW}\n\"text\""), "it is a text, not an object with `messages`"),
        (format!("{ROW}\n{{\"messages\": \"x\"}}"), "`messages` is a text, not an array"),
        (format!("{ROW}\n{{\"messages\": null}}"), "it has no `messages`"),
        (format!("{ROW}\n{{\"messages\": [}}"), "it isn't JSON (line 2, column 15"),
        (format!("{ROW}\n{{\"tools\": \"[\", \"messages\": []}}"), "its `tools` isn't JSON"),
    ] {
        let said = refused("a.jsonl", &text, &of(RowFormat::Messages));
        assert!(said.contains("a.jsonl, row 2: ") && said.contains(problem), "{problem}: {said}");
    }
    for (format, row, problem) in [
        (RowFormat::ShareGpt, r#"{"conversations": []}"#, "`conversations` is empty"),
        (
            RowFormat::ShareGpt,
            r#"{"conversations": [{"from": "me", "value": ""}]}"#,
            "turn 1: its role is \"me\"",
        ),
        (RowFormat::ShareGpt, r#"{"conversations": [[]]}"#, "turn 1: it is an array"),
        (RowFormat::Alpaca, r#"{"instruction": "i", "output": 7}"#, "its `output` is a number"),
        (RowFormat::Alpaca, r#"{"instruction": "i"}"#, "it has no `output`"),
        (
            RowFormat::PromptCompletion,
            r#"{"prompt": "p", "completion": []}"#,
            "give two texts or two arrays",
        ),
    ] {
        let said = refused("a.json", format!("[{row}]"), &of(format));
        assert!(said.contains("a.json, row 1: ") && said.contains(problem), "{problem}: {said}");
    }
}

#[test]
fn what_is_no_text_is_refused_by_row() {
    let chatml = template("chatml");
    let config = config(RowFormat::Messages, Some(&chatml));
    let broken = ROW.replace('q', "\u{1}").into_bytes();
    let broken: Vec<u8> =
        broken.into_iter().map(|byte| if byte == 1 { 0xff } else { byte }).collect();
    let lines = [ROW.as_bytes(), b"\n", &broken].concat();
    let said = refused("a.jsonl", &lines, &config);
    assert!(said.contains("row 2: line 2 isn't UTF-8 at byte 43"), "{said}");
    let array = [b"[", ROW.as_bytes(), b",", &broken, b"]"].concat();
    let said = refused("a.json", &array, &config);
    assert!(said.contains("row 2: it isn't JSON"), "{said}");
    let said = refused("a.json", "[]", &config);
    assert!(said.contains("it has no rows"), "{said}");
    let said = refused("a.txt", "a text", &config);
    assert!(said.contains("it has no messages rows"), "{said}");
}

fn found(text: &str) -> Result<ChatTemplate> {
    ChatTemplate::find(None, &text.into(), &Tokenizer::Byte, Some("2026-11-25")).map(Option::unwrap)
}

#[test]
fn bad_templates_are_refused_with_their_line() {
    for (text, problem) in [
        ("{% for m in messages %}", "isn't a Jinja template"),
        ("a\n{{ messages | }}", "(line 2 of the template)"),
        ("{% nothing %}", "isn't a Jinja template"),
        ("{{ messages[-1].content }}{% generation %}", "ends before endgeneration"),
        ("{% generation %}{% generation %}{% endgeneration %}", "ends before endgeneration"),
        ("{{ messages[-1].content }}{% endgeneration %}", "endgeneration"),
    ] {
        let said = found(text).err().unwrap().to_string();
        assert!(said.contains("chat_template.jinja") && said.contains(problem), "{said}");
    }
    let none = ChatTemplate::find(Some("chatm"), &TemplateFiles::default(), &Tokenizer::Byte, None);
    let said = none.err().unwrap().to_string();
    assert!(said.contains("neither a file nor one of the built-in"), "{said}");
    let wrong = ChatTemplate::find(
        Some("chatml"),
        &TemplateFiles::default(),
        &Tokenizer::Byte,
        Some("tomorrow"),
    );
    assert!(wrong.is_err());
    for (text, problem) in [
        ("{{ raise_exception('no ' ~ messages[0].role) }}", "no user (line 1 of the template)"),
        (
            "{% for i in range(9999) %}{% for i in range(9999) %}{% endfor %}{% endfor %}",
            "too many steps",
        ),
        ("{{ messages[0].content.nothing.more }}", "line 1"),
        ("{{ strftime_now('%!') }}", "strftime_now"),
        (
            "{% for part in messages[-1].content %}{{ part.text }}{% endfor %}",
            "lists of parts alone",
        ),
        (
            "{{ messages[-1].content }}{% generation %}{% generation %}{% endgeneration %}{% endgeneration %}",
            "overlap",
        ),
        ("{{ messages | length }}{{ messages[-1].content }}", "give --train-on last"),
    ] {
        let template = found(text).unwrap();
        let more = r#"{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
            {"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}]}"#;
        let said = refused("a.json", more, &config(RowFormat::Messages, Some(&template)));
        assert!(said.contains("a.json, row 1: ") && said.contains(problem), "{problem}: {said}");
    }
    let said = refused("a.json", ROW, &config(RowFormat::Messages, None));
    assert!(said.contains("no chat template") && said.contains("--chat-template"), "{said}");
}

#[test]
fn templates_get_what_transformers_gives_them() {
    let text = "{{ strftime_now('%d %b %Y') }}|{{ messages[0].content.strip().upper() }}|{{ true }}|{{ none }}|\
                {{ messages | tojson }}|{{ tools is none }}|{{ bos_token }}|{% for i in [1, 2] %}{% break %}{% endfor %}\
                {%- set ns = namespace(n=0) %}{% set ns.n = 2 %}{{ ns.n }}|{{ {'b': 1, 'a': '<é>'} | tojson(sort_keys=true) }}";
    let written = found(text).unwrap().question(" hi ").unwrap();
    let json = r#"[{"role": "user", "content": " hi "}]"#;
    let expected = format!("25 Nov 2026|HI|True|None|{json}|True||2|{{\"a\": \"<é>\", \"b\": 1}}");
    assert_eq!(written, expected);
    assert!(found(text).unwrap().is_dated());
    let written = |text: &str| found(text).unwrap().question("q").unwrap();
    let iterable = "{{ tools is iterable }} {{ messages is iterable }} {{ 'a' is iterable }} {{ no is iterable }}";
    assert_eq!(written(iterable), "False True True True");
    assert_eq!(written("a\r\n{% if true %}\r\nb\rc{% endif %}\r\n"), "a\nb\nc");
}

#[test]
fn a_turn_ends_with_the_first_token_behind_it() {
    let text = "{% for m in messages %}{% generation %}{{ m.content }}<|end|>\n{% endgeneration %}{% endfor %}<|endoftext|>";
    assert_eq!(found(text).unwrap().end_of_turn(), "<|end|>");
    assert_eq!(found("{{ messages[-1].content }}\n\n").unwrap().end_of_turn(), "");
    assert_eq!(found("").unwrap().end_of_turn(), "");
}

#[test]
fn a_models_own_templates_are_found() {
    let json = include_bytes!("../../../../tests/parity/chat-masks/tokenizer.json");
    let find = |config: &str, asked: Option<&str>, beside: Option<&str>| {
        let tokenizer = Tokenizer::parse("t", json, Some(config.as_bytes())).unwrap();
        let template = ChatTemplate::find(
            asked,
            &beside.map(TemplateFiles::from).unwrap_or_default(),
            &tokenizer,
            None,
        )?;
        template.map(|template| template.question("q")).transpose()
    };
    let one = r#"{"chat_template": "one {{ eos_token }}", "eos_token": "</s>"}"#;
    assert_eq!(find(one, None, None).unwrap().as_deref(), Some("one </s>"));
    assert_eq!(find(one, None, Some("file")).unwrap().as_deref(), Some("file"));
    assert_eq!(find("{}", None, None).unwrap(), None);
    let named = r#"{"chat_template": [{"name": "default", "template": "d"}, {"name": "rag", "template": "r"}]}"#;
    assert_eq!(find(named, None, None).unwrap().as_deref(), Some("d"));
    assert_eq!(find(named, Some("rag"), None).unwrap().as_deref(), Some("r"));
    let several = named.replace("default", "other");
    assert!(find(&several, None, None).unwrap_err().to_string().contains("other, rag"));
    // As transformers, another one where a row has tools.
    let with_tools = named.replace("rag", "tool_use");
    for config in [&*with_tools, r#"{"chat_template": {"default": "d", "tool_use": "r"}}"#] {
        let tokenizer = Tokenizer::parse("t", json, Some(config.as_bytes())).unwrap();
        let written = |asked: Option<&str>, beside: Option<&str>, tools: minijinja::Value| {
            let template = ChatTemplate::find(
                asked,
                &beside.map(TemplateFiles::from).unwrap_or_default(),
                &tokenizer,
                None,
            )
            .unwrap()
            .unwrap();
            template.render(&[], &row::Conversation { tools, ..Default::default() }, false)
        };
        let tools = || minijinja::Value::from(vec![1]);
        assert_eq!(written(None, None, tools()).unwrap(), "r");
        // Files take the place of all that the configuration has.
        assert_eq!(written(None, Some("file"), tools()).unwrap(), "file");
        assert_eq!(written(None, None, minijinja::Value::UNDEFINED).unwrap(), "d");
        assert_eq!(written(Some("default"), None, tools()).unwrap(), "d");
    }
    let beside = |default: &str| {
        let others = [("tool_use", "t"), ("rag", "g")];
        let others = others.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        TemplateFiles { others, ..TemplateFiles::from(default) }
    };
    let tokenizer = Tokenizer::parse("t", json, Some(one.as_bytes())).unwrap();
    for (asked, default, tools, expected) in [
        (None, "file", true, "t"),
        (None, "file", false, "file"),
        (Some("default"), "file", true, "file"),
        (Some("rag"), "file", true, "g"),
        (None, "{% generation %}file{% endgeneration %}", true, "--chat-template"),
    ] {
        let template = ChatTemplate::find(asked, &beside(default), &tokenizer, None);
        let template = template.unwrap().unwrap();
        let tools =
            if tools { minijinja::Value::from(vec![1]) } else { minijinja::Value::UNDEFINED };
        let chat = row::Conversation { tools, ..Default::default() };
        let written = template.render(&[], &chat, false).unwrap_or_else(|problem| problem);
        assert!(written.contains(expected), "{asked:?}, {default}: {written}");
        // Its own files lead to it again.
        let again = ChatTemplate::find(None, &template.files(), &tokenizer, None).unwrap().unwrap();
        assert_eq!(again.files(), template.files());
    }
    for wrong in [
        r#"{"chat_template": 3}"#,
        r#"{"chat_template": {"default": 3}}"#,
        r#"{"chat_template": [{"name": 1}]}"#,
        "{",
    ] {
        let said = find(wrong, None, None).unwrap_err().to_string();
        assert!(said.contains("tokenizer_config.json"), "{said}");
    }
}

/// Any JSON, with the words that rows are of.
fn anything() -> impl Strategy<Value = serde_json::Value> {
    let word = prop::sample::select(vec![
        "messages",
        "role",
        "user",
        "assistant",
        "content",
        "weight",
        "tools",
        "tool_calls",
        "prompt",
        "completion",
        "conversations",
        "from",
        "value",
        "gpt",
        "instruction",
        "input",
        "output",
        "text",
        "type",
        "{%}",
        "\u{fdd0}",
    ]);
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        word.clone().prop_map(Into::into),
    ];
    leaf.prop_recursive(5, 48, 5, move |inner| {
        let fields = prop::collection::vec((word.clone(), inner.clone()), 0..5);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Into::into),
            fields.prop_map(|fields| {
                fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            }),
        ]
    })
}

proptest! {
    #[test]
    fn any_row_is_read_or_refused(value in anything()) {
        let chatml = template("chatml");
        let row: minijinja::Value = serde_json::from_value(value.clone()).unwrap();
        let folder = tempdir().unwrap();
        let path = file(&folder, "a.json", serde_json::json!([value]).to_string());
        for format in RowFormat::ALL {
            let read = Row::read(&row, *format);
            let opened = Chats::open(&[&path], &config(*format, Some(&chatml)));
            prop_assert!(read.is_ok() || opened.is_err());
        }
        // Told, or refused in words.
        let _ = row_format(&[&path], RowFormat::Auto, None);
    }

    #[test]
    fn any_template_is_taken_or_refused(text in "[-a-z{}% +\"'é|.()\n]{0,40}") {
        if let Ok(template) = found(&format!("{text}{{% generation %}}{text}")) {
            let _ = template.question("q");
        }
        let _ = found(&text);
    }
}

/// Half of a conversation's turns lose their thoughts where others follow, as in Qwen 3's template.
#[test]
fn templates_that_drop_earlier_thoughts_train_every_turn() {
    const DROPS: &str = "{% for m in messages %}<{{ m.role }}>\n{{ m.content if loop.last else m.content.split('</t>')[-1] }}<end>\n\
                         {% endfor %}{% if add_generation_prompt %}<assistant>\n{% endif %}";
    let template = found(DROPS).unwrap();
    let chat = |turns: usize| {
        let turn =
            r#"{"role": "user", "content": "q"}, {"role": "assistant", "content": "x</t>a"}"#;
        format!(r#"{{"messages": [{}]}}"#, vec![turn; turns].join(", "))
    };
    for turns in [2, 40] {
        let folder = tempdir().unwrap();
        let path = file(&folder, "a.jsonl", chat(turns));
        let chats = Chats::open(&[&path], &config(RowFormat::Messages, Some(&template))).unwrap();
        let earlier = "<user>\nq<end>\n<assistant>\n[a<end>\n]".repeat(turns - 1);
        let expected = earlier + "<user>\nq<end>\n<assistant>\n[x</t>a<end>\n]";
        assert_eq!(shown(&chats.rows(), 0), expected);
    }
}

#[test]
fn rows_that_are_no_conversations_are_told_apart() {
    let folder = tempdir().unwrap();
    let format = |name: &str, text: &str| {
        let path = file(&folder, name, text);
        row_format(&[path], RowFormat::Auto, None).map_err(|error| error.to_string())
    };
    let kto = r#"{"prompt": "p", "completion": "c", "label": true}"#;
    assert!(format("k.jsonl", kto).unwrap_err().contains("`label`"));
    assert!(format("b.jsonl", "{\"messages\": }").unwrap_err().contains("row 1"));
    let nan = r#"{"messages": [{"role": "user", "content": "q\ud83d"}], "score": NaN}"#;
    assert_eq!(format("n.jsonl", nan), Ok(RowFormat::Messages));
}
