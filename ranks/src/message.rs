//! What ranks tell each other beside the bytes of tensors: a header before each transfer, and control messages. All have a fixed
//! length, so that a receiver needs no length first.

use crate::transport::Fault;

/// Bytes of a [`Header`].
pub const HEADER: usize = 128;
/// Bytes of a [`Control`]. MPI sends so few at once, without waiting for the receiver.
pub const CONTROL: usize = 1024;

/// What is done with the bytes of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Part r goes to rank r.
    Exchange,
    /// Everything goes to everybody.
    Gather,
}

/// What a rank began. All ranks must begin the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    /// Bytes that each rank sends to each.
    pub length: u64,
    pub ticket: u64,
    /// The first bytes of the tensor's name.
    pub what: String,
}

impl Header {
    pub fn new(kind: Kind, length: usize, ticket: u64, what: &str) -> Self {
        Self { kind, length: length as u64, ticket, what: shortened(what, HEADER - 18).to_owned() }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let kind = match self.kind {
            Kind::Exchange => 0,
            Kind::Gather => 1,
        };
        let mut bytes = vec![kind];
        bytes.extend(self.length.to_le_bytes());
        bytes.extend(self.ticket.to_le_bytes());
        bytes.push(u8::try_from(self.what.len()).unwrap_or(u8::MAX));
        bytes.extend(self.what.as_bytes());
        bytes.resize(HEADER, 0);
        bytes
    }

    /// # Errors
    /// Where the bytes aren't those of a header: the peer is another program.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Fault> {
        let mut rest = Rest(bytes);
        let mut read = || {
            let kind = match rest.take::<1>()?[0] {
                0 => Kind::Exchange,
                1 => Kind::Gather,
                _ => return None,
            };
            let length = u64::from_le_bytes(rest.take()?);
            let ticket = u64::from_le_bytes(rest.take()?);
            let letters = rest.take::<1>()?[0];
            Some(Self { kind, length, ticket, what: rest.text(letters.into())? })
        };
        read().ok_or_else(|| Fault::new("it sent a header that this version doesn't read"))
    }

    /// As a message says it: `exchange 12 bytes of "wte"`.
    pub fn said(&self) -> String {
        let verb = match self.kind {
            Kind::Exchange => "exchange",
            Kind::Gather => "gather",
        };
        format!("{verb} {} bytes of {} as its transfer {}", self.length, self.what, self.ticket)
    }
}

/// What ranks tell each other about themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Asks what the receiver does. A rank that waits answers.
    Ask,
    /// The sender waits for `what`.
    Waits { what: String },
    /// The sender has ended its work.
    Done,
    /// The sender can't go on; `rank` is at fault, which may be another rank.
    Failed { rank: usize, reason: String },
    /// The sender has said to its user all that it had to say, and exits.
    Exits,
}

impl Control {
    pub fn to_bytes(&self) -> Vec<u8> {
        let (kind, rank, text) = match self {
            Self::Ask => (0, 0, ""),
            Self::Waits { what } => (1, 0, what.as_str()),
            Self::Done => (2, 0, ""),
            Self::Failed { rank, reason } => (3, *rank, reason.as_str()),
            Self::Exits => (4, 0, ""),
        };
        let text = shortened(text, CONTROL - 11);
        let mut bytes = vec![kind];
        bytes.extend((rank as u64).to_le_bytes());
        bytes.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes.resize(CONTROL, 0);
        bytes
    }

    /// # Errors
    /// Where the bytes aren't those of a control message: the peer is another program.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Fault> {
        let mut rest = Rest(bytes);
        let mut read = || {
            let kind = rest.take::<1>()?[0];
            let rank = usize::try_from(u64::from_le_bytes(rest.take()?)).ok()?;
            let letters = u16::from_le_bytes(rest.take()?);
            let text = rest.text(letters.into())?;
            Some(match kind {
                0 => Self::Ask,
                1 => Self::Waits { what: text },
                2 => Self::Done,
                3 => Self::Failed { rank, reason: text },
                4 => Self::Exits,
                _ => return None,
            })
        };
        read().ok_or_else(|| Fault::new("it sent a message that this version doesn't read"))
    }
}

/// The first `limit` bytes of a text, or a little less: letters stay whole.
fn shortened(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// Bytes that aren't read yet.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn text(&mut self, length: usize) -> Option<String> {
        let (first, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(std::str::from_utf8(first).ok()?.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back() {
        for what in ["", "wte", &"é".repeat(200)] {
            for kind in [Kind::Exchange, Kind::Gather] {
                let header = Header::new(kind, 1 << 40, u64::MAX, what);
                let bytes = header.to_bytes();
                assert_eq!(bytes.len(), HEADER);
                assert_eq!(Header::from_bytes(&bytes), Ok(header.clone()));
                assert!(what.starts_with(&header.what) && header.what.len() < HEADER);
            }
        }
    }

    #[test]
    fn control_messages_come_back() {
        let long = "ü".repeat(CONTROL);
        for control in [
            Control::Ask,
            Control::Waits { what: "wte".into() },
            Control::Done,
            Control::Failed { rank: 70_000, reason: "no space is left".into() },
            Control::Failed { rank: 2, reason: long.clone() },
            Control::Exits,
        ] {
            let bytes = control.to_bytes();
            assert_eq!(bytes.len(), CONTROL);
            match (&control, Control::from_bytes(&bytes).unwrap()) {
                (Control::Failed { reason, .. }, Control::Failed { reason: cut, .. }) => {
                    assert!(reason.starts_with(&cut) && cut.len() + 20 > reason.len().min(CONTROL));
                }
                (_, read) => assert_eq!(read, control),
            }
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        for bytes in
            [vec![], vec![9; CONTROL], vec![0; 8], vec![1, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 255]]
        {
            assert!(Control::from_bytes(&bytes).is_err(), "{bytes:?}");
        }
        for bytes in [
            vec![],
            vec![9; HEADER],
            vec![0; 17],
            [vec![0; 17], vec![4, 255, 255, 255, 255]].concat(),
        ] {
            assert!(Header::from_bytes(&bytes).is_err(), "{bytes:?}");
        }
    }
}
