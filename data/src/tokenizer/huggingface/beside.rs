//! Tokens that the files beside a `tokenizer.json` name, added in the order in which transformers adds them.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;
use tokenizers::AddedToken;
use tokenizers::processors::template::TemplateProcessing;

use super::{ADDED_TOKENS, CONFIG, SPECIAL_TOKENS_MAP, classes, growth};

/// Keys of special tokens, in transformers' order.
const NAMED: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Special tokens by transformers' names, and how the files beside the tokenizer changed it.
pub(super) struct Beside {
    /// Texts by name, `bos_token` and so on.
    pub named: BTreeMap<String, String>,
    /// True if tokens were added, or the configuration's class changed another part.
    pub changed: bool,
}

/// The JSON object in the file `name` of `files`; null where it is none.
fn object(files: &[(String, Vec<u8>)], name: &str) -> Value {
    let file = files.iter().find(|(own, _)| own == name);
    let value = file.and_then(|(_, text)| serde_json::from_slice(text).ok());
    value.filter(Value::is_object).unwrap_or_default()
}

/// Adds the tokens of `files`, each a name and its bytes, to `inner`, and changes what their configuration's class changes. Files that aren't
/// JSON objects are passed over.
///
/// # Errors
/// A message, for a token that the library takes too long for.
pub(super) fn complete(
    inner: &mut tokenizers::Tokenizer,
    files: &[(String, Vec<u8>)],
) -> Result<Beside, String> {
    let read = |name: &str| object(files, name);
    let config = read(CONFIG);
    let mut found = Found::default();
    let listed = config.get("added_tokens_decoder").and_then(Value::as_object);
    found.name_all(&config, None);
    match listed {
        Some(listed) => {
            let tokens = listed
                .iter()
                .filter_map(|(id, token)| Some((id.parse().ok()?, added(token, None)?)));
            found.listed = tokens.collect();
        }
        None => {
            found.name_all(&read(SPECIAL_TOKENS_MAP), Some(true));
            let special: HashSet<String> = found.special().map(|it| it.content.clone()).collect();
            let held = inner.get_added_tokens_decoder();
            for (text, id) in read(ADDED_TOKENS).as_object().into_iter().flatten() {
                let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
                let Some(id) = id.filter(|id| !held.contains_key(id)) else { continue };
                let special = special.contains(text);
                let token = AddedToken::from(text.clone(), special).normalized(!special);
                found.listed.insert(id, token);
            }
        }
    }
    let tokens = found.missing(inner);
    tokens.iter().try_for_each(|token| growth::check_token(&token.content))?;
    // Special tokens in a text are text then.
    let splits = config.get("split_special_tokens").and_then(Value::as_bool) == Some(true);
    if splits {
        inner.set_encode_special_tokens(true);
    }
    let changed = classes::apply(inner, &config)? | !tokens.is_empty() | splits;
    if !tokens.is_empty() {
        inner.add_tokens(&tokens);
    }
    let named = found.named.iter().map(|(name, token)| (name.clone(), token.content.clone()));
    Ok(Beside { named: named.collect(), changed })
}

/// Sets the post-processor that `add_bos_token` and `add_eos_token` of the files ask for, where they say either. transformers 5 obeys them only where it makes
/// a tokenizer of other files: a `tokenizer.json` has a post-processor of its own, or none.
///
/// # Errors
/// A message, for a token that isn't there.
pub(super) fn surround_as_asked(
    inner: &mut tokenizers::Tokenizer,
    files: &[(String, Vec<u8>)],
    named: &BTreeMap<String, String>,
) -> Result<bool, String> {
    let config = object(files, CONFIG);
    let asked = ["add_bos_token", "add_eos_token"].map(|key| config.get(key));
    if asked.iter().all(Option::is_none) {
        return Ok(false);
    }
    let token = |index: usize, name: &str| {
        let wanted = asked[index].is_some_and(|it| it.as_bool() == Some(true));
        named.get(name).filter(|_| wanted).cloned()
    };
    surround(inner, token(0, "bos_token"), token(1, "eos_token"))?;
    Ok(true)
}

/// Sets the post-processor that puts these tokens around a text.
fn surround(
    inner: &mut tokenizers::Tokenizer,
    begin: Option<String>,
    end: Option<String>,
) -> Result<(), String> {
    let mut single = Vec::new();
    let mut pair = Vec::new();
    let mut special = Vec::new();
    for (sequence, kind) in [("$A", 0), ("$B", 1)] {
        let parts = [begin.as_deref(), Some(sequence), end.as_deref()];
        let parts: Vec<String> =
            parts.into_iter().flatten().map(|it| format!("{it}:{kind}")).collect();
        if kind == 0 {
            single.clone_from(&parts);
        }
        pair.extend(parts);
    }
    for token in [begin, end].into_iter().flatten() {
        let id = inner.token_to_id(&token).ok_or_else(|| format!("it has no token {token:?}"))?;
        special.push((token, id));
    }
    let made = TemplateProcessing::builder()
        .try_single(single)
        .and_then(|it| it.try_pair(pair))
        .map_err(|error| format!("its tokens can't be put around a text ({error})"))?
        .special_tokens(special)
        .build()
        .map_err(|error| format!("its tokens can't be put around a text ({error})"))?;
    inner.with_post_processor(Some(made));
    Ok(())
}

#[derive(Default)]
struct Found {
    /// By id.
    listed: BTreeMap<u32, AddedToken>,
    /// By name, in the order of [`NAMED`] and then of the files.
    named: Vec<(String, AddedToken)>,
    extra: Vec<AddedToken>,
}

impl Found {
    /// Takes the special tokens that a file names; `special` is the flag that they get.
    fn name_all(&mut self, file: &Value, special: Option<bool>) {
        let others = file.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        let others = others.filter(|name| name.ends_with("_token") && !NAMED.contains(name));
        for name in NAMED.into_iter().chain(others) {
            self.name(name, &file[name], special);
        }
        let extra = ["extra_special_tokens", "additional_special_tokens"];
        match extra.into_iter().map(|key| &file[key]).find(|value| !value.is_null()) {
            Some(Value::Array(list)) => {
                for token in list.iter().filter_map(|token| added(token, Some(true))) {
                    if self.extra.iter().all(|known| known.content != token.content) {
                        self.extra.push(token);
                    }
                }
            }
            Some(Value::Object(by_name)) => {
                by_name.iter().for_each(|(name, token)| self.name(name, token, special));
            }
            _ => {}
        }
    }

    fn name(&mut self, name: &str, token: &Value, special: Option<bool>) {
        let Some(token) = added(token, special) else { return };
        match self.named.iter_mut().find(|(own, _)| own == name) {
            Some((_, held)) => *held = token,
            None => self.named.push((name.to_owned(), token)),
        }
    }

    fn special(&self) -> impl Iterator<Item = &AddedToken> {
        self.named.iter().map(|(_, token)| token).chain(&self.extra)
    }

    /// Tokens that `inner` lacks, or has with other flags.
    fn missing(&self, inner: &tokenizers::Tokenizer) -> Vec<AddedToken> {
        let held = inner.get_added_tokens_decoder();
        let alike = |token: &AddedToken| held.values().any(|own| own == token);
        let mut tokens: Vec<AddedToken> =
            self.listed.values().filter(|token| !alike(token)).cloned().collect();
        let mut known: HashSet<String> =
            held.values().chain(&tokens).map(|token| token.content.clone()).collect();
        for token in self.special() {
            if known.insert(token.content.clone()) {
                tokens.push(token.clone());
            }
        }
        for token in &mut tokens {
            token.special |= self.named.iter().any(|(_, named)| named.content == token.content);
        }
        tokens
    }
}

/// A token as JSON writes it: a text, which is special, or an object.
fn added(token: &Value, special: Option<bool>) -> Option<AddedToken> {
    if let Some(text) = token.as_str() {
        return Some(AddedToken::from(text, true));
    }
    let content = token.get("content")?.as_str()?.to_owned();
    let flag = |name: &str, usual| token.get(name).and_then(Value::as_bool).unwrap_or(usual);
    let special = special.unwrap_or_else(|| flag("special", false));
    Some(AddedToken {
        content,
        single_word: flag("single_word", false),
        lstrip: flag("lstrip", false),
        rstrip: flag("rstrip", false),
        normalized: flag("normalized", !special),
        special,
    })
}
