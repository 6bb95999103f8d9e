//! Byte pairs learnt from texts, as a `tokenizer.json`.

use std::path::{Path, PathBuf};

use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, TokenizerBuilder};

use super::guarded::guarded;
use super::huggingface::{CONFIG, FILE};
use crate::{Error, Result, Tokenizer, files};

/// The token that ends a text.
const END: &str = "<|endoftext|>";
/// Bytes and the end of text.
const LEAST: usize = 257;
/// Ids are 31 bits wide, and an embedding of as many rows is far out of reach.
const MOST: usize = 1 << 24;

impl Tokenizer {
    /// Learns `vocab` tokens from documents: byte-level BPE as GPT-2 has it, ids beginning with the end of text and the bytes.
    /// Fewer come out of documents that don't have as many pairs that occur twice. Writes `tokenizer.json` and
    /// `tokenizer_config.json` into `dir`. Returns the file and the number of tokens.
    ///
    /// # Errors
    /// A vocabulary of less than 257 tokens, no documents, and a directory that can't be written.
    pub fn train(documents: &[String], vocab: usize, dir: &Path) -> Result<(PathBuf, usize)> {
        if !(LEAST..=MOST).contains(&vocab) {
            return Err(Error::Setting {
                what: "--vocab",
                value: vocab.to_string(),
                domain: "at least 257, which are the bytes and the end of text, and at most 16777216",
            });
        }
        let path = dir.join(FILE);
        let broken =
            |problem: String| Error::Tokenizer { name: path.display().to_string(), problem };
        if documents.iter().all(String::is_empty) {
            return Err(broken("there is no text to learn from; name more files".to_owned()));
        }
        let json =
            guarded(|| learnt(documents, vocab)).and_then(|json| json.map_err(|e| e.to_string()));
        let json = json.map_err(|problem| broken(format!("it can't be learnt ({problem})")))?;
        let config = serde_json::json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": END,
            "eos_token": END,
            "unk_token": END,
            "clean_up_tokenization_spaces": false,
        });
        let config = format!("{config:#}\n");
        // What is read back is what others read.
        let size =
            Self::parse(&path.display().to_string(), json.as_bytes(), Some(config.as_bytes()))?;
        std::fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
        for (file, text) in [(&path, &json), (&dir.join(CONFIG), &config)] {
            if file.exists() {
                let problem = "it's there already; give --out a new directory".to_owned();
                return Err(Error::Tokenizer { name: file.display().to_string(), problem });
            }
            files::write(file, text).map_err(Error::io("write", file))?;
        }
        Ok((path, size.vocab_size()))
    }
}

fn learnt(documents: &[String], vocab: usize) -> tokenizers::Result<String> {
    let mut trainer = BpeTrainerBuilder::new()
        .vocab_size(vocab)
        .min_frequency(2)
        .show_progress(false)
        .special_tokens(vec![AddedToken::from(END, true)])
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let bytes = ByteLevel::new(false, true, true);
    let mut tokenizer = TokenizerBuilder::<
        BPE,
        tokenizers::NormalizerWrapper,
        ByteLevel,
        ByteLevel,
        ByteLevel,
    >::new()
    .with_model(BPE::default())
    .with_pre_tokenizer(Some(bytes))
    .with_post_processor(Some(ByteLevel::new(false, false, true)))
    .with_decoder(Some(bytes))
    .build()?;
    tokenizer.train(&mut trainer, documents.iter().map(String::as_str))?;
    tokenizer.to_string(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_learnt_encodes_any_text_and_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let text = crate::Corpus::built_in_text().unwrap();
        let text = String::from_utf8(text).unwrap();
        let half = text.floor_char_boundary(text.len() / 4);
        let (path, size) =
            Tokenizer::train(&[text[..half].to_owned()], 512, folder.path()).unwrap();
        assert_eq!(size, 512);
        let tokenizer = Tokenizer::open(&path).unwrap();
        let ids = tokenizer.encode("First Citizen: 你好 \u{1f642}\n").unwrap();
        assert_eq!(tokenizer.decode(&ids).unwrap(), "First Citizen: 你好 \u{1f642}\n");
        assert_eq!(tokenizer.eos(), Some(0));
        let other = &text[half..half + 50_000];
        let ratio = other.len() as f64 / tokenizer.encode(other).unwrap().len() as f64;
        assert!(ratio > 1.8, "{ratio} bytes a token");
        let again = tempfile::tempdir().unwrap();
        Tokenizer::train(&[text[..half].to_owned()], 512, again.path()).unwrap();
        let [one, other] = [&folder, &again].map(|it| std::fs::read(it.path().join(FILE)).unwrap());
        assert!(one == other, "it isn't the same each time");
        for (documents, vocab) in
            [(vec![], 300), (vec![String::new()], 300), (vec!["a".into()], 256)]
        {
            assert!(Tokenizer::train(&documents, vocab, again.path()).is_err());
        }
        let (_, few) =
            Tokenizer::train(&["abab".to_owned()], 300, &again.path().join("few")).unwrap();
        assert!(few < 300);
    }
}
