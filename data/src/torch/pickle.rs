//! The pickle of a dictionary of tensors, as `torch.save` writes it (protocol 2). Nothing that it names is looked up or run: a
//! pickle may ask for any function of Python, and those that such a dictionary needs are known here.

use std::collections::HashMap;

use crate::limits::Made;

type Read<T> = Result<T, String>;

/// The storages that are read: PyTorch's name, that of safetensors, and bytes of an element.
/// Dimensions of a tensor of PyTorch at most.
const DIMENSIONS: usize = 64;
const STORAGES: [(&str, &str, usize); 10] = [
    ("FloatStorage", "F32", 4),
    ("HalfStorage", "F16", 2),
    ("BFloat16Storage", "BF16", 2),
    ("DoubleStorage", "F64", 8),
    ("LongStorage", "I64", 8),
    ("IntStorage", "I32", 4),
    ("ShortStorage", "I16", 2),
    ("CharStorage", "I8", 1),
    ("ByteStorage", "U8", 1),
    ("BoolStorage", "BOOL", 1),
];

/// The bytes that one or more tensors share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storage<'a> {
    /// As safetensors calls it.
    pub dtype: &'static str,
    /// Bytes of an element.
    pub size: usize,
    /// Its file in the archive.
    pub key: &'a str,
    pub elements: usize,
}

/// A view of a storage, in elements.
#[derive(Clone, Debug)]
pub(super) struct Tensor<'a> {
    pub storage: Storage<'a>,
    pub offset: usize,
    pub shape: Vec<usize>,
    pub strides: Vec<usize>,
}

/// What a pickle may name.
#[derive(Clone, Copy, Debug)]
enum Global {
    OrderedDict,
    RebuildTensor,
    RebuildParameter,
    Storage(&'static str, usize),
}

/// Place of a value among all that were made. Values refer to others by it, so that a deep one takes no stack, and one that is
/// used twice is there once.
type Id = usize;

#[derive(Clone, Debug)]
enum Value<'a> {
    None,
    Bool,
    Int(i64),
    Text(&'a str),
    Global(Global),
    Tuple(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Storage(Storage<'a>),
    Tensor(Tensor<'a>),
}

impl Value<'_> {
    const fn kind(&self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Bool => "a truth value",
            Self::Int(_) => "a number",
            Self::Text(_) => "a text",
            Self::Global(_) => "a function",
            Self::Tuple(_) => "a tuple",
            Self::Dict(_) => "a dictionary",
            Self::Storage(_) => "a storage",
            Self::Tensor(_) => "a tensor",
        }
    }
}

/// The tensors of a pickled dictionary, by name.
///
/// # Errors
/// Anything else, by its name.
pub(super) fn tensors(pickle: &[u8]) -> Read<Vec<(&str, Tensor<'_>)>> {
    let mut machine = Machine {
        rest: pickle,
        values: vec![],
        stack: vec![],
        marks: vec![],
        memo: HashMap::new(),
        made: Made::of(pickle.len()),
    };
    let id = machine.run()?;
    let Value::Dict(pairs) = &machine.values[id] else {
        return Err(format!("it holds {}, not a dictionary of tensors", machine.values[id].kind()));
    };
    let tensor = |&(key, value): &(Id, Id)| match (&machine.values[key], &machine.values[value]) {
        (Value::Text(name), Value::Tensor(tensor)) => Ok((*name, tensor.clone())),
        (Value::Text(name), other) => {
            Err(format!("`{name}` is {} in it, not a tensor", other.kind()))
        }
        (other, _) => Err(format!("a key of it is {}, not a name", other.kind())),
    };
    pairs.iter().map(tensor).collect()
}

/// Reads opcodes. Each takes a byte of the pickle or more and makes at most one value, so that what is held stays within a multiple of
/// the pickle's length.
struct Machine<'a> {
    rest: &'a [u8],
    values: Vec<Value<'a>>,
    stack: Vec<Id>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
    /// The count of bytes that shapes take: each tensor has its own.
    made: Made,
}

impl<'a> Machine<'a> {
    /// The value that the pickle describes.
    fn run(&mut self) -> Read<Id> {
        loop {
            let [opcode] = self.number()?;
            match opcode {
                // PROTO
                0x80 => match self.number()? {
                    [2] => {}
                    [other] => {
                        return Err(format!("its pickle has the protocol {other}, and 2 is read"));
                    }
                },
                b'.' => return self.pop(),
                b'(' => self.marks.push(self.stack.len()),
                b'N' => self.push(Value::None),
                0x88 | 0x89 => self.push(Value::Bool),
                b'K' => {
                    let [number] = self.number()?;
                    self.push(Value::Int(number.into()));
                }
                b'M' => {
                    let number = u16::from_le_bytes(self.number()?);
                    self.push(Value::Int(number.into()));
                }
                b'J' => {
                    let number = i32::from_le_bytes(self.number()?);
                    self.push(Value::Int(number.into()));
                }
                0x8a => self.long()?,
                b'X' => {
                    let len = u32::from_le_bytes(self.number()?);
                    let text = self.take(len as usize)?;
                    let text = std::str::from_utf8(text);
                    self.push(Value::Text(
                        text.map_err(|_| "a text in its pickle isn't UTF-8".to_owned())?,
                    ));
                }
                b'c' => self.global()?,
                b'Q' => self.storage()?,
                b')' => self.push(Value::Tuple(vec![])),
                0x85..=0x87 => {
                    let items = self.pop_last(usize::from(opcode - 0x84))?;
                    self.push(Value::Tuple(items));
                }
                b't' => {
                    let items = self.pop_marked()?;
                    self.push(Value::Tuple(items));
                }
                b'}' => self.push(Value::Dict(vec![])),
                b's' => {
                    let pair = self.pop_last(2)?;
                    self.set_items(&pair)?;
                }
                b'u' => {
                    let items = self.pop_marked()?;
                    self.set_items(&items)?;
                }
                b'q' => {
                    let [place] = self.number()?;
                    self.keep(place.into())?;
                }
                b'r' => {
                    let place = u32::from_le_bytes(self.number()?);
                    self.keep(place)?;
                }
                b'h' => {
                    let [place] = self.number()?;
                    self.recall(place.into())?;
                }
                b'j' => {
                    let place = u32::from_le_bytes(self.number()?);
                    self.recall(place)?;
                }
                b'R' => self.reduce()?,
                b'b' => self.build()?,
                other => {
                    return Err(format!(
                        "its pickle has the opcode {other:#04x}, which isn't read"
                    ));
                }
            }
        }
    }

    fn take(&mut self, len: usize) -> Read<&'a [u8]> {
        let (taken, rest) =
            self.rest.split_at_checked(len).ok_or("its pickle is cut off".to_owned())?;
        self.rest = rest;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Read<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("so many bytes"))
    }

    /// Text up to the end of the line.
    fn line(&mut self) -> Read<&'a str> {
        let end = self.rest.iter().position(|&byte| byte == b'\n');
        let line = self.take(end.ok_or("its pickle is cut off")?)?;
        self.take(1)?;
        std::str::from_utf8(line).map_err(|_| "a name in its pickle isn't UTF-8".to_owned())
    }

    fn push(&mut self, value: Value<'a>) {
        self.stack.push(self.values.len());
        self.values.push(value);
    }

    fn pop(&mut self) -> Read<Id> {
        Ok(self.pop_last(1)?[0])
    }

    /// The last values, which no mark is above.
    fn pop_last(&mut self, count: usize) -> Read<Vec<Id>> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let start = self.stack.len().checked_sub(count).filter(|&start| start >= floor);
        let start = start.ok_or("its pickle takes what isn't there")?;
        Ok(self.stack.split_off(start))
    }

    /// The values above the last mark, which goes.
    fn pop_marked(&mut self) -> Read<Vec<Id>> {
        let mark = self.marks.pop().ok_or("its pickle takes what isn't there")?;
        Ok(self.stack.split_off(mark))
    }

    /// The value on top, which stays.
    fn top(&self) -> Read<Id> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let top = self.stack.get(floor..).and_then(|above| above.last());
        top.copied().ok_or_else(|| "its pickle takes what isn't there".to_owned())
    }

    fn keep(&mut self, place: u32) -> Read<()> {
        let top = self.top()?;
        self.memo.insert(place, top);
        Ok(())
    }

    fn recall(&mut self, place: u32) -> Read<()> {
        let id = self.memo.get(&place).ok_or("its pickle takes what isn't there")?;
        self.stack.push(*id);
        Ok(())
    }

    /// LONG1: bytes of two's complement.
    fn long(&mut self) -> Read<()> {
        let [len] = self.number()?;
        let bytes = self.take(len.into())?;
        if bytes.len() > 8 {
            return Err("a number in its pickle has more than 64 bits".to_owned());
        }
        let negative = bytes.last().is_some_and(|&last| last >= 0x80);
        let mut filled = [if negative { 0xff } else { 0 }; 8];
        filled[..bytes.len()].copy_from_slice(bytes);
        self.push(Value::Int(i64::from_le_bytes(filled)));
        Ok(())
    }

    fn global(&mut self) -> Read<()> {
        let (module, name) = (self.line()?, self.line()?);
        let global = match (module, name) {
            ("collections", "OrderedDict") => Some(Global::OrderedDict),
            ("torch._utils", "_rebuild_tensor_v2") => Some(Global::RebuildTensor),
            ("torch._utils", "_rebuild_parameter") => Some(Global::RebuildParameter),
            ("torch", name) => STORAGES
                .iter()
                .find(|(known, ..)| *known == name)
                .map(|&(_, dtype, size)| Global::Storage(dtype, size)),
            _ => None,
        };
        let global = global.ok_or_else(|| {
            format!(
                "its pickle asks for `{}`, which isn't looked up",
                format!("{module}.{name}").escape_default()
            )
        })?;
        self.push(Value::Global(global));
        Ok(())
    }

    /// BINPERSID: `("storage", its class, its file, its device, its elements)`.
    fn storage(&mut self) -> Read<()> {
        let id = self.pop()?;
        let parts = self.tuple(id, "a storage")?;
        let values: Vec<&Value<'a>> = parts.iter().map(|&part| &self.values[part]).collect();
        let [
            Value::Text("storage"),
            Value::Global(Global::Storage(dtype, size)),
            Value::Text(key),
            Value::Text(_),
            Value::Int(elements),
        ] = values[..]
        else {
            return Err("a storage in its pickle isn't as PyTorch writes it".to_owned());
        };
        let elements = natural(*elements)?;
        self.push(Value::Storage(Storage { dtype, size: *size, key, elements }));
        Ok(())
    }

    fn tuple(&self, id: Id, of: &str) -> Read<&[Id]> {
        match &self.values[id] {
            Value::Tuple(items) => Ok(items),
            other => {
                Err(format!("{of} in its pickle is {}, not as PyTorch writes it", other.kind()))
            }
        }
    }

    fn numbers(&self, id: Id) -> Read<Vec<usize>> {
        let number = |&item: &Id| match &self.values[item] {
            Value::Int(number) => natural(*number),
            other => Err(format!("a size in its pickle is {}", other.kind())),
        };
        let shape = self.tuple(id, "a shape")?;
        if shape.len() > DIMENSIONS {
            return Err(format!(
                "a shape in its pickle has {} dimensions, and PyTorch's have at most {DIMENSIONS}",
                shape.len()
            ));
        }
        shape.iter().map(number).collect()
    }

    /// Calls what is below the top with the arguments on top.
    fn reduce(&mut self) -> Read<()> {
        let pair = self.pop_last(2)?;
        let arguments = self.tuple(pair[1], "a call")?;
        let made = match &self.values[pair[0]] {
            Value::Global(Global::OrderedDict) if arguments.is_empty() => Value::Dict(vec![]),
            Value::Global(Global::RebuildTensor) => self.rebuilt(arguments)?,
            Value::Global(Global::RebuildParameter) => match arguments
                .first()
                .map(|&it| &self.values[it])
            {
                Some(Value::Tensor(tensor)) => Value::Tensor(tensor.clone()),
                _ => return Err("a parameter in its pickle isn't as PyTorch writes it".to_owned()),
            },
            _ => return Err("a call in its pickle isn't one that makes a tensor".to_owned()),
        };
        if let Value::Tensor(tensor) = &made {
            self.made.add(size_of_val(&*tensor.shape) + size_of_val(&*tensor.strides))?;
        }
        self.push(made);
        Ok(())
    }

    /// `_rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks[, metadata])`.
    fn rebuilt(&self, arguments: &[Id]) -> Read<Value<'a>> {
        let malformed = || "a tensor in its pickle isn't as PyTorch writes it".to_owned();
        let (Some(&[storage, offset, shape, strides]), 6..=7) =
            (arguments.first_chunk(), arguments.len())
        else {
            return Err(malformed());
        };
        let (Value::Storage(storage), Value::Int(offset)) =
            (&self.values[storage], &self.values[offset])
        else {
            return Err(malformed());
        };
        let (shape, strides) = (self.numbers(shape)?, self.numbers(strides)?);
        if shape.len() != strides.len() {
            return Err(malformed());
        }
        Ok(Value::Tensor(Tensor { storage: *storage, offset: natural(*offset)?, shape, strides }))
    }

    fn set_items(&mut self, items: &[Id]) -> Read<()> {
        let (pairs, []) = items.as_chunks::<2>() else {
            return Err("a dictionary in its pickle has a key without a value".to_owned());
        };
        let id = self.top()?;
        let Value::Dict(known) = &mut self.values[id] else {
            return Err("its pickle gives items to what is no dictionary".to_owned());
        };
        known.extend(pairs.iter().map(|&[key, value]| (key, value)));
        Ok(())
    }

    /// What a module says of itself beside its tensors, which nothing here reads.
    fn build(&mut self) -> Read<()> {
        let state = self.pop()?;
        let id = self.top()?;
        match (&self.values[id], &self.values[state]) {
            (Value::Dict(_), Value::Dict(_)) => Ok(()),
            (other, _) => Err(format!("its pickle sets the state of {}", other.kind())),
        }
    }
}

fn natural(number: i64) -> Read<usize> {
    usize::try_from(number).map_err(|_| format!("a size in its pickle is {number}"))
}
