//! What the chamber asks of the shim and hears of it, through a file that both see: words of 64 bits, then the path of a log.

/// The variable of the environment that names the file.
pub const CONTROL: &str = "TORTURE_CONTROL";
/// Words of the file.
pub const WORDS: usize = 10;
/// Bytes of the path behind the words, with zeros at its end. Without a path, nothing is logged.
pub const PATH: usize = 512;

/// The words of the file, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// What to do: an [`Order`].
    Order,
    /// The call or the allocation to do it at, from 0.
    At,
    /// Chooses among a call's errors.
    Draw,
    /// Calls so far.
    Calls,
    /// Allocations so far.
    Allocations,
    /// 1 once the order was carried out.
    Done,
    /// The call that it was carried out at, as a number of [`Call`].
    Call,
    /// The error that it was given, 0 for a part of what it asked for.
    Error,
    /// Of [`Order::FailEachAllocation`]: allocations whose failure ended the process with words.
    Refused,
    /// Of [`Order::FailEachAllocation`]: the first allocation that isn't tried any more; 0 for no end.
    End,
}

/// What to do at the call [`Word::At`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Nothing: count.
    Count,
    /// Fail, with one of the call's errors.
    Fail,
    /// End the process as SIGKILL does, before the call.
    KillBefore,
    /// End the process after the call.
    KillAfter,
    /// End the process once the checkpoint of step [`Word::At`] has its name.
    KillAfterCheckpoint,
    /// From then on there's no space on the disk.
    Full,
    /// From then on reading and writing are interrupted or do a part, every other time.
    Stutter,
    /// Fail the allocation of this number.
    FailAllocation,
    /// Fail each allocation from this number on, each in a process of its own that ends there.
    FailEachAllocation,
}

impl Order {
    /// The order of this number.
    pub fn of(number: u64) -> Self {
        let all = [
            Self::Count,
            Self::Fail,
            Self::KillBefore,
            Self::KillAfter,
            Self::KillAfterCheckpoint,
            Self::Full,
            Self::Stutter,
            Self::FailAllocation,
            Self::FailEachAllocation,
        ];
        all.into_iter().find(|order| *order as u64 == number).unwrap_or(Self::Count)
    }
}

/// A call that does a part of what it's asked for, in place of an error.
pub const PART: i32 = 0;

macro_rules! calls {
    ($($name:ident [$($error:expr),*];)*) => {
        /// The calls that are watched.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Call {
            $(
                #[doc = concat!("`", stringify!($name), "`, whatever form of it.")]
                $name,
            )*
        }

        impl Call {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// What it can fail with on a disk that is full or broken, without rights, or in a process that is out of
            /// descriptors.
            pub fn errors(self) -> &'static [i32] {
                match self {
                    $(Self::$name => &[$($error),*],)*
                }
            }
        }
    };
}

calls! {
    Open [libc::EMFILE, libc::EACCES, libc::ENOSPC, libc::EIO];
    Read [libc::EIO, libc::EINTR, PART];
    Write [libc::ENOSPC, libc::EIO, libc::EINTR, libc::EDQUOT, PART];
    Sync [libc::EIO, libc::ENOSPC];
    Truncate [libc::EIO, libc::EINTR];
    Seek [libc::EIO];
    Rename [libc::EIO, libc::EACCES, libc::ENOSPC];
    Unlink [libc::EIO, libc::EACCES];
    Mkdir [libc::EACCES, libc::ENOSPC, libc::EIO];
    Rmdir [libc::EIO, libc::EACCES];
    Lock [libc::ENOLCK, libc::EIO];
    Stat [libc::EACCES, libc::EIO];
    List [libc::EIO, libc::ENOMEM];
    Map [libc::ENOMEM, libc::ENODEV];
    Close [libc::EIO];
    Thread [libc::EAGAIN];
}

/// The call of this number.
pub fn call(number: u64) -> Option<Call> {
    Call::ALL.iter().copied().find(|call| *call as u64 == number)
}

/// Number in the log of what isn't a call: an allocation whose failure didn't end the process as it should.
pub const ALLOCATION: u32 = u32::MAX;

/// What a process exits with that goes on after an allocation failed: whether it ends well is seen when it's failed alone.
pub const SURVIVED: i32 = 77;

/// Numbers before an entry's bytes, each of 64 bits: what, its result, three numbers, and the lengths of two paths and of the data.
pub const ENTRY: usize = 8;
