//! What rows of each format become.

use std::sync::Arc;

use ::parquet::basic::Compression;
use ::parquet::data_type::{ByteArray, ByteArrayType};
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;

use super::*;

fn format(files: &[PathBuf]) -> Result<RowFormat> {
    row_format(files, RowFormat::Auto, None)
}

#[test]
fn the_format_is_told_from_the_columns() {
    let folder = tempdir().unwrap();
    let shown = |name: &str, text: &str| format(&[file(&folder, name, text)]).unwrap();
    for (name, text, expected) in [
        ("a.jsonl", ROW.to_owned(), RowFormat::Messages),
        ("b.json", format!("[{ROW}, {ROW}]"), RowFormat::Messages),
        // A name that doesn't say so.
        ("c", format!("[{ROW}]"), RowFormat::Messages),
        ("d.txt", format!("{ROW}\n{ROW}"), RowFormat::Messages),
        ("e.jsonl", r#"[{"role": "user", "content": "q"}]"#.to_owned(), RowFormat::Messages),
        ("f.jsonl", r#"{"prompt": "", "completion": ""}"#.to_owned(), RowFormat::PromptCompletion),
        ("g.json", r#"[{"conversations": [], "id": 1}]"#.to_owned(), RowFormat::ShareGpt),
        (
            "h.json",
            r#"[{"instruction": "", "input": "", "output": ""}]"#.to_owned(),
            RowFormat::Alpaca,
        ),
        ("i.jsonl", r#"{"text": "x"}"#.to_owned(), RowFormat::Text),
        ("j.txt", r#"{"text": "x", "prompt": 1}"#.to_owned(), RowFormat::Text),
        ("k.txt", "[not json".to_owned(), RowFormat::Text),
        ("l.json", "[1, 2]".to_owned(), RowFormat::Text),
    ] {
        assert_eq!(shown(name, &text), expected, "{name}");
    }
}

#[test]
fn what_can_not_be_told_is_refused() {
    let folder = tempdir().unwrap();
    let both = file(&folder, "a.json", r#"[{"instruction": "", "output": "", "text": ""}]"#);
    let refusal = format(std::slice::from_ref(&both)).unwrap_err().to_string();
    assert!(refusal.contains("--format alpaca or --format text"), "{refusal}");
    assert_eq!(row_format(&[&both], RowFormat::Auto, Some("text")).unwrap(), RowFormat::Text);
    assert_eq!(row_format(&[&both], RowFormat::Alpaca, None).unwrap(), RowFormat::Alpaca);
    let one = file(&folder, "b.json", r#"[{"role": "user", "content": "q"}]"#);
    // Such an array by itself would be a conversation; these are the rows of a file.
    let refusal = format(&[one]).unwrap_err().to_string();
    assert!(refusal.contains("single message"), "{refusal}");
    let files = [file(&folder, "c.txt", "a text"), file(&folder, "d.jsonl", ROW)];
    let refusal = format(&files).unwrap_err().to_string();
    assert!(refusal.contains("d.jsonl: it holds messages rows"), "{refusal}");
}

/// The only row of a file, with what is trained on in brackets.
fn only(name: &str, text: impl AsRef<[u8]>, config: &ChatsConfig<'_>) -> String {
    let folder = tempdir().unwrap();
    let path = file(&folder, name, text);
    let chats = Chats::open(&[path], config).unwrap();
    assert_eq!(chats.rows().len(), 1);
    shown(&chats.rows(), 0)
}

#[test]
fn rows_of_each_format_become_turns() {
    let zephyr = template("zephyr");
    let of = |format| config(format, Some(&zephyr));
    let messages = r#"{"messages": [{"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {"role": "assistant", "content": "a", "weight": 0}, {"role": "user", "content": "r"},
        {"role": "assistant", "content": "b"}]}"#;
    assert_eq!(
        only("a.json", messages, &of(RowFormat::Messages)),
        "<|system|>\ns\n<|user|>\nq\n<|assistant|>\na\n<|user|>\nr\n<|assistant|>\n[b]\n"
    );
    let share = r#"{"system": "s", "conversations": [{"from": "human", "value": "q"},
        {"from": "gpt", "value": "a"}]}"#;
    assert_eq!(
        only("a.json", share, &of(RowFormat::ShareGpt)),
        "<|system|>\ns\n<|user|>\nq\n<|assistant|>\n[a]\n"
    );
    let weighted = r#"{"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a", "weight": 0},
        {"from": "human", "value": "r"}, {"from": "gpt", "value": "b", "weight": 1.0}]}"#;
    assert_eq!(
        only("a.json", weighted, &of(RowFormat::ShareGpt)),
        "<|user|>\nq\n<|assistant|>\na\n<|user|>\nr\n<|assistant|>\n[b]\n"
    );
    let alpaca = r#"{"instruction": "i", "input": "x", "output": "o"}"#;
    assert_eq!(
        only("a.json", alpaca, &of(RowFormat::Alpaca)),
        "<|user|>\ni\n\nx\n<|assistant|>\n[o]\n"
    );
    let own = template("alpaca");
    let text = only("a.json", alpaca, &config(RowFormat::Alpaca, Some(&own)));
    assert!(text.starts_with("Below is an instruction that describes a task, paired"), "{text}");
    let end = "### Instruction:\ni\n\n### Input:\nx\n\n### Response:\n[o\n\n]";
    assert!(text.ends_with(end), "{text}");
    let plain = r#"{"prompt": "p ", "completion": "c"}"#;
    let texts = of(RowFormat::PromptCompletion);
    assert_eq!(only("a.json", plain, &texts), "p [c\n]");
    let templated = ChatsConfig { templated_texts: true, ..texts };
    assert_eq!(only("a.json", plain, &templated), "<|user|>\np \n<|assistant|>\n[c]\n");
    let all = ChatsConfig { train_on: TrainOn::All, ..of(RowFormat::PromptCompletion) };
    // Nothing predicts the first token.
    assert_eq!(only("a.json", plain, &all), "p[ c\n]");
}

#[test]
fn gpt2_ends_a_completion_with_its_own_token() {
    let folder = tempdir().unwrap();
    let path = file(&folder, "a.jsonl", r#"{"prompt": "Hello", "completion": " world"}"#);
    let tokenizer = Tokenizer::gpt2().unwrap();
    let config = ChatsConfig { tokenizer: &tokenizer, ..config(RowFormat::PromptCompletion, None) };
    let rows = Chats::open(&[path], &config).unwrap().rows();
    let tokens: Vec<_> = rows.get(0).collect();
    assert_eq!(tokens, [(15496, false), (995, true), (50256, true)]);
}

#[test]
fn every_built_in_template_trains_on_answers_and_their_ends() {
    let folder = tempdir().unwrap();
    let rows = r#"{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
        {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}]}"#;
    let path = file(&folder, "a.json", rows);
    let tokenizer_config = br#"{"bos_token": "<s>", "eos_token": "</s>"}"#;
    let json = include_bytes!("../../../../tests/parity/chat-masks/tokenizer.json");
    let tokenizer = Tokenizer::parse("t", json, Some(tokenizer_config)).unwrap();
    for name in ChatTemplate::built_in() {
        let template = ChatTemplate::find(Some(name), &TemplateFiles::default(), &tokenizer, None)
            .unwrap()
            .unwrap();
        let config =
            ChatsConfig { tokenizer: &tokenizer, ..config(RowFormat::Messages, Some(&template)) };
        let rows = Chats::open(&[&path], &config).unwrap().rows();
        let trained: Vec<u32> =
            rows.get(0).filter(|(_, trained)| *trained).map(|(id, _)| id.cast_unsigned()).collect();
        let text = tokenizer.decode(&trained).unwrap();
        let end = template.end_of_turn();
        assert!(!end.is_empty(), "{name}");
        let squeezed: String = text.split(' ').collect();
        assert_eq!(squeezed, format!("a{end}b{end}"), "{name}");
        assert!(template.question("q").unwrap().contains('q'));
    }
}

#[test]
fn templates_see_no_null_and_reasoning_by_both_names() {
    let folder = tempdir().unwrap();
    let row = r#"{"messages": [{"role": "user", "content": "q", "tool_calls": null, "name": null},
        {"role": "assistant", "content": null, "reasoning": "r", "tool_calls": [{"function": {"arguments": null}}]}]}"#;
    let path = file(&folder, "a.json", row);
    let text = "{% for m in messages %}{{ m.name is defined }} {{ m.content is defined }}{{ m.content }} {{ 'tool_calls' in m }} \
                {{ m.reasoning_content }} {{ m.thinking }} {{ m.tool_calls | tojson if m.tool_calls }};{% endfor %}";
    let template = ChatTemplate::find(None, &text.into(), &Tokenizer::Byte, None).unwrap();
    let mut config = config(RowFormat::Messages, template.as_ref());
    config.train_on = TrainOn::All;
    let rows = Chats::open(&[path], &config).unwrap().rows();
    let expected =
        r#"F[alse Trueq False   ;False False True r r [{"function": {"arguments": null}}];]"#;
    assert_eq!(shown(&rows, 0), expected);
}

#[test]
fn tables_of_values_are_rows() {
    let folder = tempdir().unwrap();
    let json = r#"{"instruction": "Add, please", "input": "1 and 2", "output": "3"}
        {"instruction": "Say \"no\"", "input": null, "output": "no\nno"}"#;
    let values =
        "instruction,input,output\n\"Add, please\",1 and 2,3\n\"Say \"\"no\"\"\",,\"no\nno\"\n";
    let tabs =
        "instruction\tinput\toutput\nAdd, please\t1 and 2\t3\n\"Say \"\"no\"\"\"\t\t\"no\nno\"\n";
    let alpaca = template("alpaca");
    let read = |name: &str, text: &str| {
        let path = file(&folder, name, text);
        assert_eq!(format(std::slice::from_ref(&path)).unwrap(), RowFormat::Alpaca, "{name}");
        let rows = Chats::open(&[path], &config(RowFormat::Alpaca, Some(&alpaca))).unwrap().rows();
        [shown(&rows, 0), shown(&rows, 1)]
    };
    let expected = read("a.json", json);
    assert_eq!(read("a.csv", values), expected);
    assert_eq!(read("a.tsv", tabs), expected);
}

#[test]
fn nested_columns_of_parquet_are_rows() {
    let schema = "message rows { REQUIRED GROUP messages (LIST) { REPEATED GROUP list {
        REQUIRED GROUP element { REQUIRED BYTE_ARRAY role (UTF8); REQUIRED BYTE_ARRAY content (UTF8); } } } }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for column in [["user", "assistant", "user", "assistant"], ["q", "a", "é", "b"]] {
        let mut written = group.next_column().unwrap().unwrap();
        let values = column.map(ByteArray::from);
        let levels = (Some(&[1; 4][..]), Some(&[0, 1, 0, 1][..]));
        written.typed::<ByteArrayType>().write_batch(&values, levels.0, levels.1).unwrap();
        written.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    let folder = tempdir().unwrap();
    let path = file(&folder, "a.parquet", &bytes);
    assert_eq!(format(std::slice::from_ref(&path)).unwrap(), RowFormat::Messages);
    let chatml = template("chatml");
    let rows = Chats::open(&[path], &config(RowFormat::Messages, Some(&chatml))).unwrap().rows();
    assert_eq!(
        shown(&rows, 1),
        "<|im_start|>user\né<|im_end|>\n<|im_start|>assistant\n[b<|im_end|>]\n"
    );
    let cut = file(&folder, "b.parquet", &bytes[..bytes.len() - 9]);
    let refusal = Chats::open(&[cut], &config(RowFormat::Messages, Some(&chatml)));
    assert!(matches!(refusal, Err(Error::Parquet { .. })));
}

/// A table of one column of texts.
fn table(schema: &str, texts: &[&str]) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut written = group.next_column().unwrap().unwrap();
    let values: Vec<ByteArray> = texts.iter().map(|&text| ByteArray::from(text)).collect();
    written.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
    written.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    bytes
}

/// As the `datasets` library writes columns of mixed types.
#[test]
fn json_columns_of_parquet_are_values() {
    let schema = "message rows { REQUIRED BYTE_ARRAY messages (JSON); }";
    let messages = r#"[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]"#;
    let chatml = template("chatml");
    let config = config(RowFormat::Messages, Some(&chatml));
    let expected = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[a<|im_end|>]\n";
    assert_eq!(only("a.parquet", table(schema, &[messages]), &config), expected);
    let folder = tempdir().unwrap();
    let broken = file(&folder, "b.parquet", table(schema, &[messages, "[1"]));
    let refusal = Chats::open(&[broken], &config).err().unwrap().to_string();
    assert!(refusal.contains("isn't JSON"), "{refusal}");
}

#[test]
fn a_row_gives_its_template_variables() {
    let source =
        "{{ style is defined }} {{ style }}:{% for m in messages %}{{ m.content }}{% endfor %}";
    let given = ChatTemplate::find(None, &source.into(), &Tokenizer::Byte, None).unwrap().unwrap();
    let config =
        ChatsConfig { train_on: TrainOn::All, ..config(RowFormat::Messages, Some(&given)) };
    let row = |variables: &str| {
        let messages =
            r#"[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]"#;
        format!(r#"{{"messages": {messages}, "chat_template_kwargs": {variables}}}"#)
    };
    assert!(only("a.jsonl", row(r#"{"style": 7}"#), &config).contains("rue 7:"));
    for none in ["null", "{}", r#"{"style": null}"#] {
        assert!(only("a.jsonl", row(none), &config).contains("alse :"), "{none}");
    }
    let folder = tempdir().unwrap();
    let refused = Chats::open(&[file(&folder, "b.jsonl", row("3"))], &config).err().unwrap();
    assert!(refused.to_string().contains("chat_template_kwargs"), "{refused}");
}

/// The template refuses a conversation of no messages, as published ones that look at the first do.
#[test]
fn a_conversation_that_the_assistant_begins_is_trained_on_from_its_words() {
    const LOOKS: &str = "{% if messages[0].role != 'system' %}<system>\nknown<end>\n{% endif %}{% for m in messages %}\
                         <{{ m.role }}>\n{{ m.content }}<end>\n{% endfor %}{% if add_generation_prompt %}<assistant>\n{% endif %}";
    let own = TemplateFiles::from(LOOKS);
    let template = ChatTemplate::find(None, &own, &Tokenizer::Byte, None).unwrap().unwrap();
    let turns = |train_on, rest: &str| {
        let row = format!(r#"{{"messages": [{{"role": "assistant", "content": "a"}}{rest}]}}"#);
        let config = ChatsConfig { train_on, ..config(RowFormat::Messages, Some(&template)) };
        only("a.json", row, &config)
    };
    let first = "<system>\nknown<end>\n<assistant>\n[a<end>\n]";
    assert_eq!(turns(TrainOn::Assistant, ""), first);
    assert_eq!(turns(TrainOn::Last, ""), first);
    let rest = r#", {"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}"#;
    let both = format!("{first}<user>\nq<end>\n<assistant>\n[b<end>\n]");
    assert_eq!(turns(TrainOn::Assistant, rest), both);
}

#[test]
fn earlier_turns_of_alpaca_are_turns() {
    let [zephyr, alpaca] = ["zephyr", "alpaca"].map(template);
    let row = r#"{"instruction": "i", "input": "", "output": "o", "history": [["q", "a"]]}"#;
    let of = |template| config(RowFormat::Alpaca, Some(template));
    assert_eq!(
        only("a.json", row, &of(&zephyr)),
        "<|user|>\nq\n<|assistant|>\n[a]\n<|user|>\ni\n<|assistant|>\n[o]\n"
    );
    let text = only("a.json", row, &of(&alpaca));
    assert!(text.contains("### Instruction:\nq\n\n### Response:\n[a"), "{text}");
    let folder = tempdir().unwrap();
    let path = file(&folder, "a.json", row.replace(r#"["q", "a"]"#, r#"["q"]"#));
    let refused = Chats::open(&[path], &of(&zephyr)).err().unwrap().to_string();
    assert!(refused.contains("its `history` isn't an array of pairs of texts"), "{refused}");
}

#[test]
fn a_weight_of_nothing_counts_wherever_it_is() {
    let zephyr = template("zephyr");
    let row = r#"{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
        {"role": "user", "content": "r"}, {"role": "assistant", "content": "b", "weight": 0}]}"#;
    let open = |train_on| {
        let folder = tempdir().unwrap();
        let config = ChatsConfig { train_on, ..config(RowFormat::Messages, Some(&zephyr)) };
        Chats::open(&[file(&folder, "a.json", row)], &config)
    };
    let refused = open(TrainOn::All).err().unwrap().to_string();
    assert!(refused.contains("every token is trained on"), "{refused}");
    // Nothing is trained on, so the row is refused.
    let refused = open(TrainOn::Last).err().unwrap().to_string();
    assert!(refused.contains("row 1"), "{refused}");
}
