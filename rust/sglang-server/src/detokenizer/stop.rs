//! Stop strings in text that comes in pieces.
//!
//! A stop string ends the text where it is complete for the first time; of several that
//! are complete at the same place the longest counts. So where a text ends does not depend
//! on how it was cut into pieces.
//!
//! Invariant: the longest end of the text that may be the beginning of a stop string is
//! held back, and nothing else is; what is held back comes out when it turns out to be
//! none, or at the end. A byte of text costs one step for each stop string.

use std::{mem, sync::Arc};

/// The stop strings of a request.
#[derive(Clone, Debug, Default)]
pub struct Stops(Arc<[Stop]>);

#[derive(Debug)]
struct Stop {
    text: String,
    /// For each beginning of it: how long the longest proper end of that beginning is which
    /// is a beginning of it too.
    borders: Vec<usize>,
}

/// The stop strings in one text, so far.
#[derive(Clone, Debug)]
pub struct StopFinder {
    stops: Stops,
    keep_stop: bool,
    /// How much of each stop string the text ends with.
    begun: Vec<usize>,
    held: String,
    found: Option<usize>,
}

impl Stops {
    /// Empty strings stop nothing.
    #[must_use]
    pub fn new(texts: &[String]) -> Self {
        let texts = texts.iter().filter(|text| !text.is_empty());
        Self(texts.map(|text| Stop::new(text)).collect())
    }
}

impl Stop {
    fn new(text: &str) -> Self {
        let mut stop = Self {
            text: text.to_owned(),
            borders: vec![0],
        };
        let mut border = 0;
        for &byte in &text.as_bytes()[1..] {
            border = stop.next(border, byte);
            stop.borders.push(border);
        }
        stop
    }

    /// How much of it a text ends with that ended with `begun` bytes of it, after `byte`.
    fn next(&self, mut begun: usize, byte: u8) -> usize {
        let bytes = self.text.as_bytes();
        while begun > 0 && bytes[begun] != byte {
            begun = self.borders[begun - 1];
        }
        begun + usize::from(bytes[begun] == byte)
    }
}

impl StopFinder {
    /// No text yet. With `keep_stop` the stop string that ends the text stays in it.
    #[must_use]
    pub fn new(stops: Stops, keep_stop: bool) -> Self {
        Self {
            begun: vec![0; stops.0.len()],
            stops,
            keep_stop,
            held: String::new(),
            found: None,
        }
    }

    /// The stop string that has ended the text.
    #[must_use]
    pub fn found(&self) -> Option<&str> {
        self.found.map(|index| self.stops.0[index].text.as_str())
    }

    /// Takes more text, and gives what is certainly before any stop string. After a stop
    /// string there is no more.
    pub fn push(&mut self, more: String) -> String {
        if self.stops.0.is_empty() {
            return more;
        }
        if self.found.is_some() {
            return String::new();
        }
        let before = self.held.len();
        let mut text = mem::take(&mut self.held);
        text.push_str(&more);
        for (at, byte) in more.bytes().enumerate() {
            if let Some(index) = self.step(byte) {
                self.found = Some(index);
                let end = before + at + 1;
                let start = end - self.stops.0[index].text.len();
                text.truncate(if self.keep_stop { end } else { start });
                return text;
            }
        }
        let longest = self.begun.iter().copied().max().unwrap_or(0);
        // Stop strings begin with whole characters, so this is between two.
        self.held = text.split_off(text.len() - longest);
        text
    }

    /// Gives what was held back: the text has ended.
    ///
    /// `matched` is the stop string that the scheduler has seen, which need not be one that
    /// we know. The text ends there if it is in what has not been given yet.
    pub fn finish(&mut self, more: String, matched: Option<&str>) -> String {
        let mut text = self.push(more);
        if self.found.is_none() {
            text.push_str(&self.held);
            let at = matched.filter(|stop| !stop.is_empty()).and_then(|stop| {
                let start = text.find(stop)?;
                Some(start + if self.keep_stop { stop.len() } else { 0 })
            });
            text.truncate(at.unwrap_or(text.len()));
        }
        text
    }

    /// Takes a byte, and gives the longest stop string that it completes.
    fn step(&mut self, byte: u8) -> Option<usize> {
        let mut longest: Option<usize> = None;
        for (index, (stop, begun)) in self.stops.0.iter().zip(&mut self.begun).enumerate() {
            *begun = stop.next(*begun, byte);
            let length = |index: usize| self.stops.0[index].text.len();
            if *begun == stop.text.len() && longest.is_none_or(|l| length(l) < *begun) {
                longest = Some(index);
            }
        }
        longest
    }
}
