//! Moments as logs have them (RFC 3339), in nanoseconds of Unix time.

/// Parses `2026-11-28T03:00:00Z`, with a fraction or an offset from UTC.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    nanos(text).ok_or_else(|| {
        "a moment is a date, a time and an offset from UTC, such as 2026-11-28T03:00:00Z or 2026-11-28T04:00:00+01:00"
            .to_owned()
    })
}

fn nanos(text: &str) -> Option<u64> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let end = rest.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = rest.split_at(end);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    if !(1..=days_of(year, month)?).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let away = match zone.split_at(1) {
        ("Z" | "z", "") => 0,
        (sign @ ("+" | "-"), offset) => {
            let [hours, minutes] = numbers(offset, ':', [2, 2])?;
            let away = (hours <= 23 && minutes <= 59).then_some(hours * 3_600 + minutes * 60)?;
            if sign == "+" { away } else { -away }
        }
        _ => return None,
    };
    let is_fraction = fraction.len() <= 9 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let fraction: u64 = is_fraction.then(|| format!("{fraction:0<9}").parse().ok())??;
    let seconds = days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - away;
    u64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?.checked_add(fraction)
}

/// Numbers with these digits.
fn numbers<const N: usize>(text: &str, between: char, digits: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(between);
    let mut numbers = [0; N];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next().filter(|part| part.len() == digits)?;
        *number = part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())??;
    }
    parts.next().is_none().then_some(numbers)
}

const fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

const fn days_of(year: i64, month: i64) -> Option<i64> {
    match month {
        2 if is_leap(year) => Some(29),
        2 => Some(28),
        4 | 6 | 9 | 11 => Some(30),
        1..=12 => Some(31),
        _ => None,
    }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let before = year - 1;
    let years = 365 * before + before / 4 - before / 100 + before / 400;
    let months: i64 = (1..month).filter_map(|month| days_of(year, month)).sum();
    years + months + day - 1 - EPOCH
}

/// Days from 0001-01-01 to 1970-01-01.
const EPOCH: i64 = 719_162;

#[cfg(test)]
mod tests {
    use super::*;

    /// Moments have the numbers that `date -u +%s` gives, and what is none is refused.
    #[test]
    fn moments_are_parsed() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T23:59:59Z", 951_868_799),
            ("2026-11-28T03:00:00Z", 1_795_834_800),
            ("2026-11-28T04:00:00+01:00", 1_795_834_800),
            ("2026-11-27 21:30:00-05:30", 1_795_834_800),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ] {
            assert_eq!(nanos(text), Some(seconds * 1_000_000_000), "{text}");
        }
        assert_eq!(nanos("1970-01-01T00:00:01.000250Z"), Some(1_000_250_000));
        for bad in [
            "",
            "03:00",
            "2026-11-28",
            "2026-11-28T03:00:00",
            "2026-11-28T03:00Z",
            "2026-11-28T24:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-28T03:00:00.Z0",
            "2026-11-28T03:00:00+1",
            "2026-11-28T+3:00:00Z",
            "1969-12-31T23:59:59Z",
            "9999-12-31T23:59:59Z",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
