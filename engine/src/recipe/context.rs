//! The context of data whose rows have lengths of their own.

use tightrope_data::{Chats, ChatsConfig};

use crate::error::Result;
use crate::settings::Settings;

/// Multiple, in tokens, of a context that follows the rows: kernels take whole tiles of positions.
const TILE: usize = 8;

/// Tokens of a sequence of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// This number of tokens. Longer rows are cut.
    Of(usize),
    /// As many as the longest row takes.
    Longest {
        /// Upper bound, in tokens.
        most: usize,
        /// Ranks that share every sequence. The context is a multiple of their number.
        ranks: usize,
    },
}

impl Context {
    /// The most tokens of a sequence if the settings name no context.
    pub const MOST: usize = 2048;

    /// The context that the settings name, else that of the rows: at most [`Context::MOST`], and the positions that the model has.
    pub fn asked(settings: &Settings, positions: usize) -> Self {
        let longest =
            Self::Longest { most: positions.min(Self::MOST), ranks: settings.run.context_ranks };
        settings.model.context.map_or(longest, Self::Of)
    }

    /// The most tokens of a sequence, whatever the rows have.
    pub fn most(self) -> usize {
        match self {
            Self::Of(context) => context,
            Self::Longest { .. } => self.tokens(usize::MAX / 2),
        }
    }

    /// The tokens of a sequence, for rows of which the longest has `longest` tokens.
    pub fn tokens(self, longest: usize) -> usize {
        match self {
            Self::Of(context) => context,
            Self::Longest { most, ranks } => {
                let ranks = ranks.max(1);
                let step = (1..=TILE).map(|times| times * ranks).find(|it| it.is_multiple_of(TILE));
                let context = longest.max(1).next_multiple_of(step.unwrap_or(TILE));
                context.min((most / ranks * ranks).max(1))
            }
        }
    }

    /// Reads `files` as `config` says, cut to the tokens of a sequence, which come back too.
    ///
    /// # Errors
    /// As [`Chats::open`].
    pub(crate) fn read(
        self,
        files: &[std::path::PathBuf],
        config: ChatsConfig<'_>,
    ) -> Result<(Chats, usize)> {
        let of = |context| Chats::open(files, &ChatsConfig { context, ..config });
        if let Self::Of(context) = self {
            return Ok((of(Some(context))?, context));
        }
        let whole = of(None)?;
        let longest = longest(&whole);
        let context = self.tokens(longest);
        let chats = if longest > context.saturating_add(1) { of(Some(context))? } else { whole };
        Ok((chats, context))
    }

    /// A note on the choice of `context`, for rows of which the longest has `longest` tokens; `None` if the settings name it.
    pub fn note(self, context: usize, longest: usize) -> Option<String> {
        let Self::Longest { most, .. } = self else { return None };
        let limit = if most < Self::MOST {
            "all that the model has positions for"
        } else {
            "the most without --context"
        };
        Some(match longest > context.saturating_add(1) {
            true => {
                format!("the context is {context} tokens, {limit}: the longest row has {longest}")
            }
            false => format!("the context is {context} tokens: the longest row has {longest}"),
        })
    }
}

/// Tokens of the longest row, uncut.
pub(crate) fn longest(chats: &Chats) -> usize {
    chats.lengths().iter().copied().max().unwrap_or(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_holds_the_longest_row_up_to_a_limit() {
        let of = |most, ranks, longest| Context::Longest { most, ranks }.tokens(longest);
        assert_eq!(of(131_072_usize.min(Context::MOST), 1, 287), 288);
        assert_eq!(of(2048, 1, 2049), 2048);
        assert_eq!(of(2048, 1, 90_000), 2048);
        assert_eq!(of(60, 1, 59), 60);
        assert_eq!(of(2048, 1, 0), 8);
        // Each rank has as much of every sequence.
        assert_eq!(of(2048, 3, 40), 48);
        assert_eq!(of(2048, 3, 5000), 2046);
        assert_eq!(Context::Of(7).tokens(900), 7);
    }

    #[test]
    fn the_context_of_settings_comes_first() {
        let mut settings = Settings::default();
        let longest = Context::Longest { most: 1024, ranks: 1 };
        assert_eq!(Context::asked(&settings, 1024), longest);
        let note = longest.note(1024, 5000).unwrap();
        assert_eq!(
            note,
            "the context is 1024 tokens, all that the model has positions for: the longest row has 5000"
        );
        let note = Context::asked(&settings, 131_072).note(2048, 5000).unwrap();
        assert!(note.contains("2048 tokens, the most without --context"), "{note}");
        settings.model.context = Some(99);
        assert_eq!(Context::asked(&settings, 131_072), Context::Of(99));
        assert_eq!(Context::Of(99).note(99, 5000), None);
    }
}
