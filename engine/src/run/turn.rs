//! Turns of an assistant as a model writes them.

/// An assistant's turn as it comes. What may be the beginning of its end is held back.
pub(crate) struct Turn {
    end: String,
    held: String,
}

impl Turn {
    /// A turn that ends with this text; with no text if that's empty.
    pub fn new(end: String) -> Self {
        Self { end, held: String::new() }
    }

    /// Text that is certain, and `true` if the turn goes on.
    pub fn push(&mut self, piece: &str) -> (String, bool) {
        self.held += piece;
        if self.end.is_empty() {
            return (std::mem::take(&mut self.held), true);
        }
        if let Some(at) = self.held.find(&self.end) {
            let said = self.held[..at].to_owned();
            self.held.clear();
            return (said, false);
        }
        let starts = self.held.char_indices().map(|(at, _)| at);
        let begun = starts.filter(|&at| self.end.starts_with(&self.held[at..])).min();
        let held = begun.map_or(String::new(), |at| self.held.split_off(at));
        (std::mem::replace(&mut self.held, held), true)
    }

    /// Text held back of a turn that didn't end.
    pub fn rest(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_with_its_last_token_however_that_comes() {
        for (pieces, said, ended) in [
            (&["a<", "|im_", "end|>", "b"][..], "a", true),
            (&["a<|im_end|>b"], "a", true),
            (&["a<|im", "_x", "<"], "a<|im_x<", false),
        ] {
            let mut turn = Turn::new("<|im_end|>".to_owned());
            let (mut text, mut goes_on) = (String::new(), true);
            for piece in pieces {
                if goes_on {
                    let (more, on) = turn.push(piece);
                    (text, goes_on) = (text + &more, on);
                }
            }
            assert_eq!((text + &turn.rest(), !goes_on), (said.to_owned(), ended), "{pieces:?}");
        }
    }
}
