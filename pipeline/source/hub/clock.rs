//! The time, and waiting. Only the download log holds times, and no digest covers it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SLICE: Duration = Duration::from_millis(200);
const DAY: u64 = 86_400;

/// What the client asks for the time and how it waits, so that a test can do both without a second
/// passing.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Seconds since 1970-01-01, UTC.
    fn now(&self) -> u64;

    /// Waits, or less if `stop` becomes true.
    fn sleep(&self, time: Duration, stop: &AtomicBool);
}

/// The clock of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "times of the download log; no digest covers them")]
    fn now(&self) -> u64 {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    fn sleep(&self, time: Duration, stop: &AtomicBool) {
        let mut left = time;
        while !left.is_zero() && !stop.load(Ordering::Relaxed) {
            let slice = left.min(SLICE);
            std::thread::sleep(slice);
            left = left.saturating_sub(slice);
        }
    }
}

/// Seconds since 1970-01-01 as RFC 3339, UTC.
pub fn utc(seconds: u64) -> String {
    let (days, time) = (seconds / DAY, seconds % DAY);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", time / 3600, time / 60 % 60, time % 60)
}

/// A date of an HTTP header (`Sun, 06 Nov 1994 08:49:37 GMT`) in seconds since 1970-01-01.
pub(super) fn http_date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_ascii_whitespace().skip(1);
    let day: u64 = words.next()?.parse().ok()?;
    let name = words.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as u64 + 1;
    let year: u64 = words.next()?.parse().ok()?;
    let mut clock = words.next()?.split(':').map(str::parse::<u64>);
    let mut part = || clock.next()?.ok();
    let seconds = part()? * 3600 + part()? * 60 + part()?;
    (1970..3000).contains(&year).then(|| days(year, month, day) * DAY + seconds)
}

/// Days since 1970-01-01 as a date of the Gregorian calendar (Hinnant, "chrono-compatible low-level
/// date algorithms", `civil_from_days`).
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// The inverse of [`civil`] (Hinnant, `days_from_civil`).
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day.max(1) - 1;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    (era * 146_097 + of_era).saturating_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_headers_are_read() {
        assert_eq!(http_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(utc(784_111_777), "1994-11-06T08:49:37Z");
        assert_eq!(http_date("tomorrow"), None);
        for day in (0..60_000).step_by(7) {
            let (year, month, date) = civil(day);
            assert_eq!(days(year, month, date), day);
        }
    }
}
