//! A disk, and what is found on it after the power went away.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::Context as _;

use super::log::Entry;
use crate::draws::Draws;
use crate::protocol::{Call, call};

/// Number of a file or a folder, whatever its name. The first is the folder that everything is in.
type Node = usize;
const ROOT: Node = 0;

/// A change of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A file or a folder got a name.
    Link { folder: Node, name: String, node: Node },
    /// A name was removed.
    Unlink { folder: Node, name: String },
    /// A name was given up for another, over what had it.
    Rename { from: (Node, String), to: (Node, String), node: Node },
    /// Bytes were written.
    Write { node: Node, at: u64, bytes: Vec<u8> },
    /// The length was set.
    Truncate { node: Node, length: u64 },
    /// All before was flushed: the bytes of a file, or the names in a folder.
    Flush { node: Node },
}

impl Change {
    /// Whether it's of names, and not of bytes.
    fn is_of_names(&self) -> bool {
        matches!(self, Self::Link { .. } | Self::Unlink { .. } | Self::Rename { .. })
    }

    /// Whether flushing `node` keeps it.
    fn is_kept_by(&self, node: Node) -> bool {
        match self {
            Self::Link { folder, .. } | Self::Unlink { folder, .. } => *folder == node,
            Self::Rename { from, to, .. } => from.0 == node || to.0 == node,
            Self::Write { node: of, .. } | Self::Truncate { node: of, .. } => *of == node,
            Self::Flush { .. } => false,
        }
    }
}

/// What a node holds.
#[derive(Clone, Debug)]
enum Held {
    Folder(BTreeMap<String, Node>),
    File(Vec<u8>),
}

/// What was done to a disk, and what it was before.
pub struct Record {
    /// What was there, and what was made later, empty.
    before: Vec<Held>,
    /// In their order.
    pub changes: Vec<Change>,
}

/// What a file system keeps of what wasn't flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// Everything: only the process died.
    All,
    /// Nothing.
    Nothing,
    /// Names in their order up to some moment, and with any flush all names before it, as journals do; of bytes any part.
    Journal,
    /// Any part of names and of bytes.
    Any,
}

impl Habit {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::All, Self::Nothing, Self::Journal, Self::Any];
}

/// An open descriptor.
#[derive(Clone, Copy)]
struct Open {
    node: Node,
    at: u64,
    appends: bool,
}

/// Reads a log into changes.
struct Reader<'a> {
    root: &'a Path,
    nodes: Vec<Held>,
    open: BTreeMap<i64, Open>,
    changes: Vec<Change>,
}

impl Record {
    /// Of a command that ran in `dir` with this log, and began with what `before` holds.
    ///
    /// # Errors
    /// Files that can't be read.
    pub fn new(before: &Path, dir: &Path, log: &[Entry]) -> anyhow::Result<Self> {
        let mut nodes = vec![];
        load(before, &mut nodes)?;
        let mut before = nodes.clone();
        let mut reader = Reader { root: dir, nodes, open: BTreeMap::new(), changes: vec![] };
        for entry in log {
            // Calls of other files change nothing here.
            let _ = reader.read(entry);
        }
        let empty = |held: &Held| match held {
            Held::Folder(_) => Held::Folder(BTreeMap::new()),
            Held::File(_) => Held::File(vec![]),
        };
        before.extend(reader.nodes[before.len()..].iter().map(empty));
        Ok(Self { before, changes: reader.changes })
    }

    /// Which of the first `count` changes are kept: all that was flushed, and of the rest what the habit keeps.
    fn kept(&self, count: usize, habit: Habit, draws: &mut Draws) -> Vec<bool> {
        let done = &self.changes[..count];
        let flush_after = |at: usize, change: &Change| {
            done[at..]
                .iter()
                .any(|later| matches!(later, Change::Flush { node } if change.is_kept_by(*node)))
        };
        let last_flush = done.iter().rposition(|change| matches!(change, Change::Flush { .. }));
        let names_end = last_flush.unwrap_or(0) + draws.place(count - last_flush.unwrap_or(0) + 1);
        let half_lost = draws.one_in(2);
        done.iter()
            .enumerate()
            .map(|(at, change)| match habit {
                Habit::All => true,
                _ if flush_after(at, change) => true,
                Habit::Nothing => false,
                Habit::Journal if change.is_of_names() => at < names_end,
                Habit::Journal | Habit::Any => half_lost && draws.one_in(2),
            })
            .collect()
    }

    /// Makes in `to` what is found after the first `count` changes.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn found(
        &self,
        count: usize,
        habit: Habit,
        draws: &mut Draws,
        to: &Path,
    ) -> anyhow::Result<()> {
        let kept = self.kept(count, habit, draws);
        let mut nodes = self.before.clone();
        for (change, kept) in self.changes[..count].iter().zip(kept) {
            if kept {
                apply(change, &mut nodes);
            } else if let Change::Write { node, at, bytes } = change
                && habit != Habit::Nothing
                && draws.one_in(2)
            {
                // A part of it was kept, or room for it alone.
                let part = draws.place(bytes.len() + 1);
                let bytes = if draws.one_in(2) { bytes[..part].to_vec() } else { vec![0; part] };
                apply(&Change::Write { node: *node, at: *at, bytes }, &mut nodes);
            }
        }
        write(&nodes, ROOT, to)
    }

    /// Steps of the newest checkpoint that was named, and its name flushed, in the first `count` changes: it may not be lost.
    pub fn promised(&self, count: usize) -> Option<u64> {
        let mut promised = None;
        for (at, change) in self.changes[..count].iter().enumerate() {
            let Change::Rename { to: (folder, name), .. } = change else { continue };
            let flushed = self.changes[at..count]
                .iter()
                .any(|later| matches!(later, Change::Flush { node } if node == folder));
            let step = name.strip_prefix("step-").and_then(|step| step.parse::<u64>().ok());
            promised = promised.max(step.filter(|_| flushed));
        }
        promised
    }
}

/// Reads a folder into nodes.
fn load(path: &Path, nodes: &mut Vec<Held>) -> anyhow::Result<Node> {
    let node = nodes.len();
    if path.is_dir() {
        nodes.push(Held::Folder(BTreeMap::new()));
        let mut names = BTreeMap::new();
        for entry in fs::read_dir(path).with_context(|| format!("can't list {}", path.display()))? {
            let entry = entry?;
            names.insert(
                entry.file_name().to_string_lossy().into_owned(),
                load(&entry.path(), nodes)?,
            );
        }
        nodes[node] = Held::Folder(names);
    } else {
        nodes.push(Held::File(fs::read(path)?));
    }
    Ok(node)
}

fn write(nodes: &[Held], node: Node, to: &Path) -> anyhow::Result<()> {
    match &nodes[node] {
        Held::File(bytes) => fs::write(to, bytes)?,
        Held::Folder(names) => {
            fs::create_dir_all(to)?;
            for (name, node) in names {
                write(nodes, *node, &to.join(name))?;
            }
        }
    }
    Ok(())
}

fn names(nodes: &mut [Held], folder: Node) -> Option<&mut BTreeMap<String, Node>> {
    match nodes.get_mut(folder)? {
        Held::Folder(names) => Some(names),
        Held::File(_) => None,
    }
}

/// Makes a change. One that rests on another that was lost does what is left of it.
fn apply(change: &Change, nodes: &mut [Held]) {
    match change {
        Change::Link { folder, name, node } => {
            names(nodes, *folder).and_then(|names| names.insert(name.clone(), *node));
        }
        Change::Unlink { folder, name } => {
            names(nodes, *folder).and_then(|names| names.remove(name));
        }
        Change::Rename { from, to, node } => {
            if let Some(names) = names(nodes, from.0)
                && names.get(&from.1) == Some(node)
            {
                names.remove(&from.1);
            }
            names(nodes, to.0).and_then(|names| names.insert(to.1.clone(), *node));
        }
        Change::Write { node, at, bytes } => {
            let Some(Held::File(held)) = nodes.get_mut(*node) else { return };
            let (start, end) = (*at as usize, *at as usize + bytes.len());
            held.resize(held.len().max(end), 0);
            held[start..end].copy_from_slice(bytes);
        }
        Change::Truncate { node, length } => {
            if let Some(Held::File(held)) = nodes.get_mut(*node) {
                held.resize(*length as usize, 0);
            }
        }
        Change::Flush { .. } => {}
    }
}

impl Reader<'_> {
    fn read(&mut self, entry: &Entry) -> Option<()> {
        let [first, second] = entry.numbers;
        let path = &entry.paths[0];
        match call(entry.what.into())? {
            Call::Open => self.opened(first, path, second, entry.result)?,
            Call::Close => drop(self.open.remove(&first)),
            Call::Seek => self.open.get_mut(&first)?.at = u64::try_from(entry.result).ok()?,
            Call::Write => self.written(first, second, &entry.data)?,
            Call::Truncate => {
                let (node, length) = (self.open.get(&first)?.node, u64::try_from(second).ok()?);
                self.change(Change::Truncate { node, length });
            }
            Call::Sync => {
                let node = self.open.get(&first)?.node;
                self.change(Change::Flush { node });
            }
            Call::Mkdir => {
                let (folder, name) = self.place(first, path)?;
                self.made(folder, name, Held::Folder(BTreeMap::new()));
            }
            Call::Unlink | Call::Rmdir => {
                let (folder, name) = self.place(first, path)?;
                self.change(Change::Unlink { folder, name });
            }
            Call::Rename => {
                let (from, to) = (self.place(HERE, path)?, self.place(HERE, &entry.paths[1])?);
                let node = *names(&mut self.nodes, from.0)?.get(&from.1)?;
                self.change(Change::Rename { from, to, node });
            }
            _ => {}
        }
        Some(())
    }

    fn change(&mut self, change: Change) {
        apply(&change, &mut self.nodes);
        self.changes.push(change);
    }

    fn made(&mut self, folder: Node, name: String, held: Held) -> Node {
        let node = self.nodes.len();
        self.nodes.push(held);
        self.change(Change::Link { folder, name, node });
        node
    }

    fn opened(&mut self, folder: i64, path: &Path, flags: i64, descriptor: i64) -> Option<()> {
        let flags = i32::try_from(flags).ok()?;
        let node = match self.node(folder, path) {
            Some(node) => node,
            None if flags & libc::O_CREAT != 0 => {
                let (folder, name) = self.place(folder, path)?;
                self.made(folder, name, Held::File(vec![]))
            }
            // Another file, which isn't under the root.
            None => return None,
        };
        if flags & libc::O_TRUNC != 0 {
            self.change(Change::Truncate { node, length: 0 });
        }
        self.open.insert(descriptor, Open { node, at: 0, appends: flags & libc::O_APPEND != 0 });
        Some(())
    }

    fn written(&mut self, descriptor: i64, at: i64, bytes: &[u8]) -> Option<()> {
        let open = self.open.get_mut(&descriptor)?;
        let node = open.node;
        let Held::File(held) = self.nodes.get(node)? else { return None };
        let at = match u64::try_from(at) {
            Ok(at) => at,
            Err(_) => {
                let at = if open.appends { held.len() as u64 } else { open.at };
                open.at = at + bytes.len() as u64;
                at
            }
        };
        self.change(Change::Write { node, at, bytes: bytes.to_vec() });
        Some(())
    }

    /// The folder that a path is in, and its name there.
    fn place(&mut self, folder: i64, path: &Path) -> Option<(Node, String)> {
        let name = path.file_name()?.to_string_lossy().into_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = match parent {
            Some(parent) => self.node(folder, parent)?,
            None => self.folder(folder)?,
        };
        Some((folder, name))
    }

    fn folder(&self, descriptor: i64) -> Option<Node> {
        if descriptor == HERE {
            Some(ROOT)
        } else {
            self.open.get(&descriptor).map(|open| open.node)
        }
    }

    fn node(&mut self, folder: i64, path: &Path) -> Option<Node> {
        let within = path.strip_prefix(self.root).map(PathBuf::from);
        let (mut node, path) = match within {
            Ok(within) => (ROOT, within),
            Err(_) if path.is_absolute() => return None,
            Err(_) => (self.folder(folder)?, path.to_owned()),
        };
        for part in path.components() {
            match part {
                Component::CurDir => {}
                Component::Normal(name) => {
                    node = *names(&mut self.nodes, node)?.get(name.to_str()?)?
                }
                _ => return None,
            }
        }
        Some(node)
    }
}

/// The descriptor of the folder that a process works in.
const HERE: i64 = libc::AT_FDCWD as i64;
