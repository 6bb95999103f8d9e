//! Pages: an arena larger than one allocation is cut at multiples of a page, and no tensor lies across a cut.

/// Space handed out from the start of the arena, each piece within one page.
pub struct Pages {
    bytes: u64,
    /// Bytes in use of each page.
    used: Vec<u64>,
}

impl Pages {
    /// An empty arena with pages of `bytes`.
    pub fn new(bytes: u64) -> Self {
        Self { bytes, used: vec![] }
    }

    /// Offset of `size` new bytes: in the first page with room. What is larger than a page starts one of its
    /// own and runs on.
    pub fn append(&mut self, size: u64) -> u64 {
        let room = |used: u64| used.checked_add(size).is_some_and(|end| end <= self.bytes);
        let page = self.used.iter().position(|&used| room(used)).unwrap_or(self.used.len());
        let offset = match self.used.get_mut(page) {
            Some(used) => {
                let start = *used;
                *used += size;
                start
            }
            None => {
                let mut rest = size;
                while rest > self.bytes {
                    self.used.push(self.bytes);
                    rest -= self.bytes;
                }
                self.used.push(rest);
                0
            }
        };
        page as u64 * if page > 0 { self.bytes } else { 0 } + offset
    }

    /// End of the highest piece.
    pub fn end(&self) -> u64 {
        match self.used.split_last() {
            Some((last, [])) => *last,
            Some((last, full)) => full.len() as u64 * self.bytes + last,
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_is_filled_in_order() {
        let mut pages = Pages::new(u64::MAX);
        assert_eq!([pages.append(3), pages.append(5)], [0, 3]);
        assert_eq!(pages.end(), 8);
    }

    #[test]
    fn nothing_lies_across_a_cut() {
        let mut pages = Pages::new(100);
        assert_eq!(
            [60, 60, 40, 30, 250, 50].map(|size| pages.append(size)),
            [0, 100, 60, 160, 200, 400 + 50]
        );
        assert_eq!(pages.end(), 500);
    }
}
