//! Preferences: what is trained on of two answers, which rows are refused or left out, and batches of pairs.

use std::sync::Arc;

use super::*;

/// Opens a file of these rows.
fn open(rows: &str, context: Option<usize>) -> Result<Chats> {
    let folder = tempdir().unwrap();
    let path = file(&folder, "a.jsonl", rows);
    assert_eq!(row_format(&[&path], RowFormat::Auto, None)?, RowFormat::Preference);
    let chatml = template("chatml");
    Chats::open(&[path], &ChatsConfig { context, ..config(RowFormat::Preference, Some(&chatml)) })
}

fn message(role: &str, content: &str) -> String {
    format!(r#"{{"role": "{role}", "content": "{content}"}}"#)
}

fn row(fields: &[(&str, &str)]) -> String {
    let fields: Vec<String> =
        fields.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
    format!("{{{}}}\n", fields.join(", "))
}

#[test]
fn answers_are_trained_on_from_where_they_part() {
    let [user, good, bad] =
        [message("user", "q"), message("assistant", "a"), message("assistant", "bc")];
    let array = |messages: &[&String]| {
        let messages: Vec<&str> = messages.iter().map(|message| message.as_str()).collect();
        format!("[{}]", messages.join(", "))
    };
    let [whole, other] = [&good, &bad].map(|answer| array(&[&user, answer]));
    let [only, only_other] = [&good, &bad].map(|answer| array(&[answer]));
    let prompt = array(&[&user]);
    let question = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n";
    let chat = [format!("{question}[a<|im_end|>]\n"), format!("{question}[bc<|im_end|>]\n")];
    let system = array(&[&message("system", "s")]);
    let kind = chat.each_ref().map(|text| format!("<|im_start|>system\ns<|im_end|>\n{text}"));
    for (fields, expected) in [
        // Two texts, as prompts and completions are.
        (
            [("prompt", r#""q ""#), ("chosen", r#""a""#), ("rejected", r#""bc""#)],
            &["q [a\n]".to_owned(), "q [bc\n]".to_owned()],
        ),
        // Texts that begin with their prompt; a space before the answer is its own.
        (
            [("id", "1"), ("chosen", r#""q: a""#), ("rejected", r#""q: bc""#)],
            &["q:[ a\n]".to_owned(), "q:[ bc\n]".to_owned()],
        ),
        (
            [("id", "1"), ("chosen", r#""qa""#), ("rejected", r#""qabc""#)],
            &["q[a\n]".to_owned(), "q[abc\n]".to_owned()],
        ),
        ([("prompt", &prompt), ("chosen", &only), ("rejected", &only_other)], &chat),
        ([("prompt", &prompt), ("chosen", r#""a""#), ("rejected", r#""bc""#)], &chat),
        ([("prompt", r#""q""#), ("chosen", &only), ("rejected", &only_other)], &chat),
        // Whole conversations, with the prompt and without it.
        ([("prompt", r#""q""#), ("chosen", &whole), ("rejected", &other)], &chat),
        ([("id", "1"), ("chosen", &whole), ("rejected", &other)], &chat),
        ([("prompt", &prompt), ("chosen", &whole), ("rejected", &other)], &chat),
        // A prompt that both go on from with a message that isn't an answer.
        ([("prompt", &system), ("chosen", &whole), ("rejected", &other)], &kind),
    ] {
        let chats = open(&row(&fields), None).unwrap();
        let rows = chats.rows();
        assert_eq!([0, 1].map(|index| shown(&rows, index)), *expected, "{fields:?}");
        assert_eq!((rows.len(), rows.each(), rows.number(1)), (2, 2, Some(0)));
        let Counts { rows, trained, .. } = chats.counts();
        let ends =
            expected.iter().map(|text| text.find(']').unwrap() - text.find('[').unwrap() - 1);
        assert_eq!((rows, trained), (1, ends.sum()));
    }
    // Of a longer conversation, what the assistant said in both is given. Answers of several messages may begin alike.
    let [shared, next] = [message("assistant", "s"), message("user", "n")];
    let [chosen, rejected] = [&good, &bad].map(|end| array(&[&user, &shared, &next, end]));
    let longer = open(&row(&[("chosen", &chosen), ("rejected", &rejected)]), None).unwrap().rows();
    assert_eq!(shown(&longer, 1).matches('[').count(), 1);
    assert!(shown(&longer, 1).ends_with("[bc<|im_end|>]\n"), "{}", shown(&longer, 1));
    let [chosen, rejected] = [&good, &bad].map(|end| array(&[&shared, &next, end]));
    let fields = [("prompt", prompt.as_str()), ("chosen", &chosen), ("rejected", &rejected)];
    let several = open(&row(&fields), None).unwrap().rows();
    assert_eq!(shown(&several, 0).matches('[').count(), 2);
}

#[test]
fn rows_without_two_answers_are_refused() {
    let good = row(&[("prompt", r#""q""#), ("chosen", r#""a""#), ("rejected", r#""b""#)]);
    let [one, other] = [message("user", "q"), message("user", "r")].map(|it| format!("[{it}]"));
    for (fields, problem) in [
        (vec![("prompt", r#""q""#), ("chosen", r#""a""#)], "it has no `rejected`"),
        (vec![("prompt", r#""q""#), ("rejected", r#""a""#)], "it has no `chosen`"),
        (
            vec![("prompt", r#""q""#), ("chosen", r#""a""#), ("rejected", r#""a""#)],
            "its `chosen` and its `rejected` answer are the same; remove it",
        ),
        // The end of a text is its own where it has one.
        (
            vec![("prompt", r#""q""#), ("chosen", r#""a""#), ("rejected", r#""a\n""#)],
            "the tokens of its `chosen` and its `rejected` answer are the same",
        ),
        (vec![("chosen", r#""a""#), ("rejected", r#""b""#)], "it has no `prompt`"),
        (
            vec![("prompt", r#""q""#), ("chosen", r#""a""#), ("rejected", &one)],
            "`chosen` is a text and `rejected` is an array",
        ),
        (vec![("chosen", &one), ("rejected", &other)], "don't begin with the same message"),
        (
            vec![("prompt", r#""q""#), ("chosen", "[3]"), ("rejected", "[4]")],
            "message 1: it is a number",
        ),
        (
            vec![("prompt", r#""q""#), ("chosen", &one), ("rejected", &other)],
            "its `chosen` answer: it has no assistant turn",
        ),
    ] {
        let folder = tempdir().unwrap();
        let path = file(&folder, "a.jsonl", format!("{good}\n{}", row(&fields)));
        let chatml = template("chatml");
        let config = config(RowFormat::Preference, Some(&chatml));
        let said = Chats::open(&[path], &config).err().expect("a refusal").to_string();
        assert!(said.contains("a.jsonl, row 2: ") && said.contains(problem), "{problem}: {said}");
    }
}

#[test]
fn rows_are_left_out_where_the_cut_takes_an_answer_or_all_that_differs() {
    let of = |chosen: &str, rejected: &str| {
        let [chosen, rejected] = [chosen, rejected].map(|text| format!("\"{text}\""));
        row(&[("prompt", r#""qq""#), ("chosen", &chosen), ("rejected", &rejected)])
    };
    let rows = of("ab", "ac") + &of("abca", "abcb") + &of("a", "bcd");
    assert_eq!(open(&rows, None).unwrap().counts().rows, 3);
    // Five tokens are read.
    let chats = open(&rows, Some(4)).unwrap();
    let Counts { rows: kept, truncated, dropped, .. } = chats.counts();
    assert_eq!((kept, truncated, dropped), (2, 1, 1));
    assert_eq!([0, 1].map(|index| chats.rows().number(2 * index)), [Some(0), Some(2)]);
    assert_eq!((chats.rows().tokens(3), chats.rows().uncut(3)), (5, 6));
    let none = open(&rows, Some(1)).err().unwrap().to_string();
    assert!(none.contains("3 rows"), "{none}");
}

#[test]
fn pairs_stay_together_with_their_numbers() {
    let rows: String = (0..7)
        .map(|n| {
            let texts = [format!("\"{n}\""), "\"+\"".to_owned(), "\"-\"".to_owned()];
            row(&[("prompt", &texts[0]), ("chosen", &texts[1]), ("rejected", &texts[2])])
        })
        .collect();
    let chats = open(&rows, None).unwrap();
    let (train, held_out) = chats.split(0.3).unwrap();
    assert_eq!((train.len(), held_out.len()), (8, 6));
    let numbers: Arc<[f32]> = (0..14).map(|n| n as f32).collect();
    let sequences = |rows| Sequences::new(rows, 4, false).unwrap().with_numbers(numbers.clone());
    // What is said of a pair: the digit of its prompt, its answers, and its numbers.
    let pairs = |batch: &RowBatch| -> Vec<(i32, [i32; 2], [f32; 2])> {
        let sequences: Vec<&[i32]> = batch.tokens.chunks(4).collect();
        let pairs = sequences.chunks(2).zip(batch.numbers.chunks(2));
        pairs
            .map(|(pair, numbers)| {
                assert_eq!(pair[0][0], pair[1][0]);
                (pair[0][0], [pair[0][1], pair[1][1]], [numbers[0], numbers[1]])
            })
            .collect()
    };
    let of = |n: i32| (i32::from(b'0') + n, [43, 45], [2.0 * n as f32, 2.0 * n as f32 + 1.0]);
    let train = sequences(train);
    assert_eq!((train.len(), train.rows()), (4, 4));
    let mut loader = Loader::of_sequences(train.clone(), 4, 5, 0).unwrap();
    let epochs = [loader.next().unwrap(), loader.next().unwrap()].map(|batch| pairs(&batch));
    let digits = |epoch: &[(i32, [i32; 2], [f32; 2])]| -> Vec<i32> {
        let mut digits: Vec<i32> = epoch.iter().map(|pair| pair.0 - i32::from(b'0')).collect();
        digits.sort_unstable();
        digits
    };
    assert_eq!(digits(&epochs[0]), digits(&epochs[1]));
    for pair in epochs.iter().flatten() {
        assert_eq!(*pair, of(pair.0 - i32::from(b'0')));
    }
    let mut again = Loader::of_sequences(train, 4, 5, 4).unwrap();
    assert_eq!(pairs(&again.next().unwrap()), epochs[1]);
    // Three pairs in batches of two: the last place is padding.
    let batches: Vec<RowBatch> = sequences(held_out).batches(2, None).unwrap().collect();
    assert_eq!((batches.len(), batches[1].numbers.len(), batches[1].targets.len()), (2, 4, 16));
    assert!(batches[1].targets[8..].iter().all(|&target| target == IGNORED));
    assert_eq!(batches[1].numbers[2..], [0.0, 0.0]);
    let whole = chats.fingerprint();
    assert_eq!(open(&rows, Some(9)).unwrap().fingerprint(), whole);
    assert_ne!(open(&rows, Some(1)).unwrap().fingerprint(), whole);
    assert_ne!(open(&rows.replace('+', "*"), None).unwrap().fingerprint(), whole);
}
