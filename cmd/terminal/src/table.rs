//! Text tables: columns, widths and ages.

use jiff::{Timestamp, Unit};

/// The width of a table that must fit a terminal, in characters.
pub const TERMINAL_WIDTH: usize = 80;

/// The characters between two columns.
const GAP: usize = 2;

/// The time since `since`, in its largest unit: `3d`, `2h`, `59s`.
pub fn age(since: Timestamp, now: Timestamp) -> String {
    // A clock that was set back must not make an age negative.
    let seconds = (now - since).total(Unit::Second).unwrap_or_default().max(0.0);
    let units = [(86_400.0, "d"), (3_600.0, "h"), (60.0, "m")];
    let (size, unit) = units.into_iter().find(|(size, _)| seconds >= *size).unwrap_or((1.0, "s"));
    format!("{:.0}{unit}", (seconds / size).floor())
}

/// The time from now to a time, or since it.
pub fn relative(at: Timestamp, now: Timestamp) -> String {
    if at > now { format!("in {}", remaining(at, now)) } else { format!("{} ago", age(at, now)) }
}

/// The time from now to `end`: `29d`, `5m`, `4m59s`. Below ten, the largest unit alone would hide up to half of it.
pub fn remaining(end: Timestamp, now: Timestamp) -> String {
    let left = end.duration_since(now);
    let seconds = left.as_secs().max(0) + i64::from(left.subsec_nanos() > 0);
    let units = [(86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s")];
    let found = units.into_iter().find(|(size, ..)| seconds >= *size);
    let Some((size, unit, smaller, smaller_unit)) = found else { return format!("{seconds}s") };
    match (seconds / size, seconds % size / smaller) {
        (count @ ..10, more @ 1..) => format!("{count}{unit}{more}{smaller_unit}"),
        (count, _) => format!("{count}{unit}"),
    }
}

/// Rows padded to the widest cell of each column, without trailing spaces.
pub fn aligned<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let widths = widths(rows);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// The part of a cell that a cut removes.
#[derive(Debug, Clone, Copy)]
pub enum CutAt {
    /// Its middle: head and tail are kept.
    Middle,
    /// Its end.
    End,
}

/// Cuts cells of the given columns, each down to its least width, in turn, until a row has at most `width` characters.
pub fn fit<const N: usize>(rows: &mut [[String; N]], width: usize, cuts: &[(usize, usize, CutAt)]) {
    for (column, least, at) in cuts {
        let widths = widths(rows);
        let all = widths.iter().sum::<usize>() + GAP * N.saturating_sub(1);
        let Some(current) = widths.get(*column) else { continue };
        let Some(excess) = all.checked_sub(width).filter(|excess| *excess > 0) else { return };
        let limit = current.saturating_sub(excess).max(*least);
        for cell in rows.iter_mut().filter_map(|row| row.get_mut(*column)) {
            let length = cell.chars().count();
            if length > limit {
                let kept = limit.saturating_sub(1);
                let tail = if matches!(at, CutAt::Middle) { kept / 2 } else { 0 };
                let (head, tail) =
                    (cell.chars().take(kept - tail), cell.chars().skip(length - tail));
                *cell = head.chain(['…']).chain(tail).collect();
            }
        }
    }
}

/// The widest cell of each column, in characters.
fn widths<const N: usize>(rows: &[[String; N]]) -> Vec<usize> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    (0..N).map(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_below_ten_has_two_units() {
        let now = Timestamp::UNIX_EPOCH;
        for (milliseconds, text) in [
            (-5, "0s"),
            (200, "1s"),
            (59_000, "59s"),
            (299_000, "4m59s"),
            (299_800, "5m"),
            (3_600_000, "1h"),
            (3_659_000, "1h"),
            (35_999_000, "9h59m"),
            (43_199_000, "11h"),
            (2_591_999_000, "29d"),
            (172_800_000, "2d"),
        ] {
            let end = Timestamp::from_millisecond(milliseconds).unwrap();
            assert_eq!(remaining(end, now), text, "{milliseconds}");
        }
        assert_eq!(relative(Timestamp::from_second(299).unwrap(), now), "in 4m59s");
        assert_eq!(relative(now, Timestamp::from_second(299).unwrap()), "4m ago");
    }

    #[test]
    fn cells_are_cut_in_turn_down_to_their_least_width() {
        let row = |one: &str, other: &str| [one.to_owned(), other.to_owned()];
        let mut rows = [row("NAME", "SERVICES"), row("a-long-name", "a-long-service")];
        let cuts = [(1, 8, CutAt::End), (0, 6, CutAt::Middle)];
        fit(&mut rows, 80, &cuts);
        assert_eq!(rows[1], row("a-long-name", "a-long-service"));
        fit(&mut rows, 20, &cuts);
        assert_eq!(rows[1], row("a-lon…name", "a-long-…"));
        let lines = aligned(&rows);
        assert_eq!(lines, ["NAME        SERVICES", "a-lon…name  a-long-…"]);
    }
}
