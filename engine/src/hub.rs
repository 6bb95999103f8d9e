//! Fetches models and data sets of the Hugging Face hub into its cache, as `huggingface_hub` lays it out.
//!
//! A program [enables](enable) it; then `model.init` and data files that name what isn't in the cache have it fetched.
//! `HF_ENDPOINT` is another address than <https://huggingface.co>, `HF_HUB_OFFLINE` fetches nothing, and `HF_TOKEN` is sent for models that ask for
//! an agreement.

use std::collections::HashMap;
use std::env;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use serde::Deserialize;
use tightrope_data::files;
use tightrope_data::hub::{Kind, Name, fetch_by};
use ureq::Agent;
use ureq::config::RedirectAuthHeaders;

/// Address of the hub.
const ENDPOINT: &str = "https://huggingface.co";
/// Bytes of the longest list of files.
const LIST: u64 = 64 << 20;
/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;
/// Limit of the wait for a connection, and for the next bytes.
const PATIENCE: Duration = Duration::from_secs(30);
/// Beginnings of names of files that a model is read from, of those in its folder itself.
const MODEL: [&str; 9] = [
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "tokenizer",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.",
    "merges.txt",
    "chat_template",
];
/// Ends of names of weights, the first kind that there is.
const WEIGHTS: [&str; 2] = [".safetensors", ".bin"];

/// Progress of a file that is fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The model or the data set.
    pub name: String,
    /// The file.
    pub file: String,
    /// Its number, from 1, and how many files there are.
    pub number: [usize; 2],
    /// Bytes that are there.
    pub done: u64,
    /// All of its bytes, where the hub says how many.
    pub all: Option<u64>,
}

/// Callback for the progress of files.
pub type Told = dyn Fn(&Progress) + Send + Sync;

/// Fetches models and data sets that are missing from the cache, from this call on. `told` gets the progress of each file.
pub fn enable(told: Box<Told>) {
    let failed: Mutex<HashMap<String, String>> = Mutex::default();
    fetch_by(Box::new(move |name| {
        let key = format!("{:?} {}@{}", name.kind, name.name, name.revision);
        // A refusal asks once more for its advice, and doesn't wait once more.
        let known = failed.lock().ok().and_then(|known| known.get(&key).cloned());
        if let Some(why) = known {
            return Err(why);
        }
        let found = fetch(name, &*told);
        if let (Err(why), Ok(mut known)) = (&found, failed.lock()) {
            known.insert(key, why.clone());
        }
        found
    }));
}

/// A revision as the hub describes it.
#[derive(Deserialize)]
struct Repository {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

fn fetch(name: &Name<'_>, told: &Told) -> Result<PathBuf, String> {
    let is_set = |key: &str| env::var(key).ok().filter(|value| !value.is_empty());
    if is_set("HF_HUB_OFFLINE").is_some_and(|value| value != "0") {
        return Err("HF_HUB_OFFLINE is set".into());
    }
    let endpoint = is_set("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
    let endpoint = endpoint.trim_end_matches('/');
    let agent: Agent = Agent::config_builder()
        // The hub hands over to other places of its own, and to hosts that hold large files, by signed addresses.
        .redirect_auth_headers(RedirectAuthHeaders::SameHost)
        .timeout_connect(Some(PATIENCE))
        .timeout_recv_response(Some(PATIENCE))
        .timeout_per_read(Some(PATIENCE))
        .build()
        .into();
    let token = is_set("HF_TOKEN");
    let get = |url: &str| {
        let mut request = agent.get(url);
        if let Some(token) = &token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        request.call().map_err(|error| match error {
            ureq::Error::StatusCode(401 | 403) => {
                "the hub knows no such name, or asks for an agreement: set HF_TOKEN".to_owned()
            }
            ureq::Error::StatusCode(404) => "the hub knows no such name or revision".to_owned(),
            error => error.to_string(),
        })
    };
    let [kind, page] = match name.kind {
        Kind::Model => ["models", ""],
        Kind::Dataset => ["datasets", "datasets/"],
    };
    let revision = name.revision.replace('/', "%2F");
    let mut list = get(&format!("{endpoint}/api/{kind}/{}/revision/{revision}", name.name))?;
    let list = list.body_mut().with_config().limit(LIST).read_to_vec();
    let list = list.map_err(|error| error.to_string())?;
    let found: Repository = serde_json::from_slice(&list)
        .map_err(|error| format!("the hub's list of files can't be read: {error}"))?;
    let is_commit = found.sha.len() <= 64 && found.sha.chars().all(|c| c.is_ascii_alphanumeric());
    if !is_commit || found.sha.is_empty() {
        return Err(format!("the hub names the commit {:?}", found.sha));
    }
    let listed = found.siblings.into_iter().map(|sibling| sibling.rfilename).collect();
    let wanted = wanted(name.kind, listed)?;
    let folder = name.folder().ok_or("there is no folder for a cache: set HF_HOME")?;
    let snapshot = folder.join("snapshots").join(&found.sha);
    for (index, file) in wanted.iter().enumerate() {
        let place = snapshot.join(file);
        if place.is_file() {
            continue;
        }
        let url = format!("{endpoint}/{page}{}/resolve/{}/{file}", name.name, found.sha);
        let mut response = get(&url)?;
        let body = response.body_mut();
        let all = body.content_length();
        let mut progress = Progress {
            name: name.name.to_owned(),
            file: file.clone(),
            number: [index + 1, wanted.len()],
            done: 0,
            all,
        };
        let reader = body.with_config().limit(u64::MAX).reader();
        copy(reader, &place, &mut progress, told).map_err(|error| format!("{file}: {error}"))?;
    }
    let reference = folder.join("refs").join(name.revision);
    let parent = reference.parent().unwrap_or(&folder);
    files::create_folder(parent).map_err(|error| error.to_string())?;
    // Last, so that what isn't whole isn't found.
    files::replace(&reference, found.sha.as_bytes()).map_err(|error| error.to_string())?;
    Ok(snapshot)
}

/// The files of the `listed` ones that are read.
fn wanted(kind: Kind, listed: Vec<String>) -> Result<Vec<String>, String> {
    let is_safe = |file: &&String| {
        file.split('/').all(|part| {
            let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '=');
            !part.is_empty() && !part.starts_with('.') && part.chars().all(known)
        })
    };
    let listed: Vec<&String> = listed.iter().filter(is_safe).collect();
    let of = |takes: &dyn Fn(&str) -> bool| -> Vec<String> {
        listed.iter().filter(|file| takes(file)).map(|&file| file.clone()).collect()
    };
    if kind == Kind::Dataset {
        let mut files = of(&|file| file.ends_with(".parquet"));
        if files.is_empty() {
            return Err(
                "the data set has no Parquet files; the hub makes them of many data sets: name its revision, @refs/convert/parquet"
                    .to_owned(),
            );
        }
        files.extend(of(&|file| file == "README.md"));
        return Ok(files);
    }
    let is_own = |file: &str| !file.contains('/');
    let mut files = of(&|file| is_own(file) && MODEL.iter().any(|begin| file.starts_with(begin)));
    let weights = WEIGHTS.iter().map(|end| {
        let index = format!("{end}.index.json");
        of(&|file| {
            // Weights of adapters, and of a whole model, in one file or in several.
            let is_weights = file.ends_with(end) && !file.starts_with("training_args");
            is_own(file) && (is_weights || file.ends_with(&index))
        })
    });
    let weights = weights.into_iter().find(|weights| !weights.is_empty());
    files.extend(weights.ok_or("it has no weights in .safetensors or .bin")?);
    files.extend(of(&|file| file == "adapter_config.json"));
    Ok(files)
}

/// Writes what is read to `place`, which has the whole file or none.
fn copy(
    mut from: impl Read,
    place: &Path,
    progress: &mut Progress,
    told: &Told,
) -> Result<(), String> {
    let words = |error: std::io::Error| error.to_string();
    let parent = place.parent().unwrap_or(place);
    files::create_folder(parent).map_err(|error| error.to_string())?;
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let partial = place.with_file_name(format!(".{name}.{}.partial", std::process::id()));
    let mut copied = || {
        let mut file = files::create(&partial).map_err(words)?;
        let mut piece = vec![0; PIECE];
        told(progress);
        loop {
            let count = from.read(&mut piece).map_err(words)?;
            if count == 0 {
                break;
            }
            file.write_all(&piece[..count]).map_err(words)?;
            progress.done += count as u64;
            told(progress);
        }
        progress.all = Some(progress.done);
        file.sync_all().map_err(words)?;
        std::fs::rename(&partial, place).map_err(words)?;
        told(progress);
        Ok(())
    };
    let copied = copied();
    if copied.is_err() {
        // The first error is the one that matters.
        let _ = std::fs::remove_file(&partial);
    }
    copied
}
