//! Scanning past damage: page by page what can be read, and in between the places that cannot.
//!
//! A scan that meets damage is an error without rows, because rows with a gap would be taken for all there is. Who can live with a gap, and
//! tells of it, asks here. Nothing is guessed: of a damaged place no row is given, not even one that an older file may still have.
//!
//! Knows nothing of files. Where a place begins and ends is found by asking for other ranges, some ten for each byte of a key. Of two places that
//! are closer together than the first is wide, what lies between may be passed over with them.

use std::fmt;
use std::ops::Bound;

use super::{Direction, Key, Partition, PrivateRows, Scan, ScanPage, StoreError};

/// A page of what can be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Passed {
    /// The rows, and the scan of what is left.
    pub page: ScanPage,
    /// What the scan of what is left begins behind, if that is damaged. There are no rows then.
    pub damage: Option<Damage>,
}

/// A place that cannot be read: keys between which there may be rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Where it begins, as far as the scan has to do with it.
    pub from: Bound<Key>,
    /// Where it ends, whoever asks: this tells it from others.
    pub until: Bound<Key>,
    /// What the backend said.
    pub reason: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = |bound: &Bound<Key>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => key.to_string(),
            Bound::Unbounded => "the end".to_owned(),
        };
        match (&self.from, &self.until) {
            (from, until) if from == until => write!(f, "row {}", key(from))?,
            (Bound::Unbounded, until) => write!(f, "rows up to {}", key(until))?,
            (from, until) => write!(f, "rows from {} to {}", key(from), key(until))?,
        }
        write!(f, " cannot be read: {}", self.reason)
    }
}

/// As [`PrivateRows::scan`], but forwards past what is damaged.
pub async fn scan_past_damage<S: PrivateRows>(
    store: &S,
    partition: &Partition,
    scan: Scan,
) -> Result<Passed, StoreError> {
    let error = match store.scan(partition, scan.clone()).await {
        Ok(page) => return Ok(Passed { page, damage: None }),
        Err(error) => error,
    };
    let StoreError::Corrupt { key: before, reason, .. } = &error else { return Err(error) };
    if scan.direction == Direction::Backwards {
        return Err(error);
    }
    let mut search = Search { store, partition, scan, asked: None };
    let passed = |rows: ScanPage| Ok(Passed { page: rows, damage: None });
    if !before.as_bytes().is_empty()
        && let Some(rows) = search.rows_up_to(before).await?
    {
        return passed(rows);
    }
    let start = match search.beginning().await? {
        Beginning::Rows(rows) => return passed(rows),
        Beginning::Place(place) => place,
    };
    let until = match search.end(start.clone()).await? {
        // Not damaged when it is asked for alone: then there is no place to pass.
        Some(end) if end == start && !search.begins_damaged(&start).await? => return Err(error),
        Some(end) => Bound::Included(end.key()),
        None => Bound::Unbounded,
    };
    let from = match &search.scan.from {
        from if Place::before(from) == start => from.clone(),
        _ => Bound::Excluded(start.key()),
    };
    let next = match &until {
        Bound::Included(end) => {
            let next = Scan { from: Bound::Included(just_behind(end)), ..search.scan };
            Some(next).filter(|next| !next.is_empty())
        }
        _ => None,
    };
    let damage = Damage { from, until, reason: reason.clone() };
    Ok(Passed { page: ScanPage { rows: Vec::new(), next }, damage: Some(damage) })
}

struct Search<'s, S> {
    store: &'s S,
    partition: &'s Partition,
    scan: Scan,
    /// The last key that was asked for alone, and whether it is damaged: places that differ may be one key.
    asked: Option<(Key, bool)>,
}

/// What there is at the beginning of a scan that fails.
enum Beginning {
    Rows(ScanPage),
    /// No rows up to here, and behind it damage.
    Place(Place),
}

impl<S: PrivateRows> Search<'_, S> {
    /// The rows up to a key; `None` if there are none or they cannot be read.
    async fn rows_up_to(&self, key: &Key) -> Result<Option<ScanPage>, StoreError> {
        let page = self.page_up_to(key).await?;
        Ok(page.filter(|page| !page.rows.is_empty()))
    }

    async fn page_up_to(&self, key: &Key) -> Result<Option<ScanPage>, StoreError> {
        let scan = Scan { until: Bound::Included(key.clone()), ..self.scan.clone() };
        let Some(mut page) = readable(self.store.scan(self.partition, scan).await)? else { return Ok(None) };
        page.next = page.rows.last().map(|last| self.scan.clone().after(last.key.clone()));
        Ok(Some(page))
    }

    /// Finds the last place up to which can be read, unless there are rows before it. Where more can be read, less can.
    async fn beginning(&self) -> Result<Beginning, StoreError> {
        let mut place = Place::before(&self.scan.from);
        if !matches!(self.scan.from, Bound::Excluded(_))
            && let Some(rows) = self.rows_up_to(&place.key()).await?
        {
            return Ok(Beginning::Rows(rows));
        }
        for bit in (0..Place::BITS).rev() {
            let Some(next) = place.plus(bit) else { continue };
            let key = next.key();
            if key != place.key() {
                let page =
                    if is_within(&key, &self.scan.until) { self.page_up_to(&key).await? } else { None };
                match page {
                    None => continue,
                    Some(rows) if !rows.rows.is_empty() => return Ok(Beginning::Rows(rows)),
                    Some(_) => {}
                }
            }
            place = next;
        }
        Ok(Beginning::Place(place))
    }

    /// Finds the last place of the damage behind this one, by steps that double and then halve; `None` if it goes on to the end.
    async fn end(&mut self, start: Place) -> Result<Option<Place>, StoreError> {
        let mut reach = 0;
        loop {
            let Some(next) = start.plus(reach) else { return Ok(None) };
            if !self.reaches(&start, &next).await? {
                break;
            }
            reach += 1;
        }
        let mut place = start;
        for bit in (0..reach).rev() {
            if let Some(next) = place.plus(bit)
                && self.reaches(&place, &next).await?
            {
                place = next;
            }
        }
        Ok(Some(place))
    }

    /// Whether the very first key of the scan is damaged.
    async fn begins_damaged(&mut self, first: &Place) -> Result<bool, StoreError> {
        Ok(!matches!(self.scan.from, Bound::Excluded(_)) && self.is_damaged(&first.key()).await?)
    }

    /// Whether the damage at the one place is also at the other, a little further on.
    async fn reaches(&mut self, known: &Place, place: &Place) -> Result<bool, StoreError> {
        let key = place.key();
        Ok(known.key() == key || self.is_damaged(&key).await?)
    }

    async fn is_damaged(&mut self, key: &Key) -> Result<bool, StoreError> {
        if let Some((_, damaged)) = self.asked.as_ref().filter(|(asked, _)| asked == key) {
            return Ok(*damaged);
        }
        let only = Scan::between(Bound::Included(key.clone()), Bound::Included(key.clone())).at_most(1);
        let damaged = readable(self.store.scan(self.partition, only).await)?.is_none();
        self.asked = Some((key.clone(), damaged));
        Ok(damaged)
    }
}

/// The key right behind this one. Not the same bound as without it: a backend looks for the keys that bound a scan.
fn just_behind(key: &Key) -> Key {
    let mut bytes = key.as_bytes().to_vec();
    bytes.push(0);
    Key::new(bytes)
}

/// `None` for what is damaged.
fn readable(result: Result<ScanPage, StoreError>) -> Result<Option<ScanPage>, StoreError> {
    match result {
        Ok(page) => Ok(Some(page)),
        Err(StoreError::Corrupt { .. }) => Ok(None),
        Err(error @ StoreError::Unavailable { .. }) => Err(error),
    }
}

fn is_within(key: &Key, until: &Bound<Key>) -> bool {
    match until {
        Bound::Included(until) => key <= until,
        Bound::Excluded(until) => key < until,
        Bound::Unbounded => true,
    }
}

/// A key as a number, so that there is a middle between two: a digit for each byte, 0 where the key has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place(Vec<u16>);

impl Place {
    /// Digits: bytes of the longest key that every backend takes.
    const DIGITS: usize = super::Limits::LEAST.key_bytes_max;
    const DIGIT_BITS: usize = 9;
    const BITS: usize = Self::DIGITS * Self::DIGIT_BITS;

    fn before(bound: &Bound<Key>) -> Self {
        let bytes = match bound {
            Bound::Included(key) | Bound::Excluded(key) => key.as_bytes(),
            Bound::Unbounded => &[],
        };
        let mut digits: Vec<u16> = bytes.iter().take(Self::DIGITS).map(|byte| u16::from(*byte) + 1).collect();
        digits.resize(Self::DIGITS, 0);
        Self(digits)
    }

    /// The greatest key that is not behind this place. A digit that is no byte is above all that are.
    fn key(&self) -> Key {
        let mut bytes = Vec::new();
        for digit in self.0.iter().take_while(|digit| **digit > 0) {
            let Ok(byte) = u8::try_from(digit - 1) else {
                bytes.resize(Self::DIGITS, u8::MAX);
                break;
            };
            bytes.push(byte);
        }
        Key::new(bytes)
    }

    /// The place that is two to this power further on.
    fn plus(&self, bit: usize) -> Option<Self> {
        let mut digits = self.0.clone();
        let mut carry: u16 = 1 << (bit % Self::DIGIT_BITS);
        for digit in digits.iter_mut().rev().skip(bit / Self::DIGIT_BITS) {
            *digit += carry;
            carry = *digit >> Self::DIGIT_BITS;
            *digit &= (1 << Self::DIGIT_BITS) - 1;
            if carry == 0 {
                return Some(Self(digits));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
