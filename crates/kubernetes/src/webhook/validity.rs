//! Points in time as certificates and events write them, in seconds since 1970. Leap seconds are not known to any of
//! the three.

/// The seconds of a day.
const DAY: u64 = 86_400;

/// How long a certificate holds, in seconds since 1970.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Validity {
    pub from: u64,
    pub until: u64,
}

/// Reads one element of DER, as X.509 uses it: a tag, a length of at most four bytes, the content.
///
/// Certificates are parsed and verified by rustls, which does not say when they end; two dates are not worth a second
/// parser of X.509 with its tree of crates.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if bytes.is_empty() || bytes.len() > 4 {
            return None;
        }
        let length = bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        (length, rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

impl Validity {
    /// Of a certificate in DER (RFC 5280, 4.1): it stands behind the version, which may be left out, the serial number,
    /// the algorithm and the issuer.
    pub fn of(certificate: &[u8]) -> Option<Self> {
        let (SEQUENCE, certificate, _) = element(certificate)? else {
            return None;
        };
        let (SEQUENCE, mut fields, _) = element(certificate)? else {
            return None;
        };
        if let (VERSION, _, rest) = element(fields)? {
            fields = rest;
        }
        for _ in ["serial number", "algorithm", "issuer"] {
            (_, _, fields) = element(fields)?;
        }
        let (SEQUENCE, validity, _) = element(fields)? else {
            return None;
        };
        let (tag, text, rest) = element(validity)?;
        let from = time(tag, text)?;
        let (tag, text, _) = element(rest)?;
        let until = time(tag, text)?;
        Some(Self { from, until })
    }

    /// Whether so much of it has gone by that it should be followed by another: two thirds, as cert-manager does it.
    pub const fn is_due(&self, now: u64) -> bool {
        let length = self.until.saturating_sub(self.from);
        now >= self.until.saturating_sub(length / 3)
    }
}

/// `YYMMDDHHMMSSZ` before 2050, `YYYYMMDDHHMMSSZ` from then on; RFC 5280 allows no other form.
fn time(tag: u8, text: &[u8]) -> Option<u64> {
    let (year, rest) = match tag {
        UTC_TIME => {
            let (digits, rest) = text.split_at_checked(2)?;
            let year = number(digits)?;
            let century = if year < 50 { 2000 } else { 1900 };
            (century + year, rest)
        }
        GENERALIZED_TIME => {
            let (digits, rest) = text.split_at_checked(4)?;
            (number(digits)?, rest)
        }
        _ => return None,
    };
    let mut fields = rest.strip_suffix(b"Z")?.chunks(2).map(number);
    let mut next = || fields.next().flatten();
    let (month, day) = (next()?, next()?);
    let (hour, minute, second) = (next()?, next()?, next()?);
    let fits = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60
        && rest.len() == 11;
    fits.then(|| days(year, month, day) * DAY + hour * 3_600 + minute * 60 + second)
}

fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |sum, digit| {
        let digit = char::from(*digit).to_digit(10)?;
        Some(sum * 10 + u64::from(digit))
    })
}

/// Days since 1970 of a date from then on, by years that begin in March, so that the leap day is a year's last.
const fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let of_year = (153 * month + 2) / 5 + day - 1;
    let leaps = year / 4 - year / 100 + year / 400;
    365 * year + leaps + of_year - EPOCH
}

/// Days from the 1st of March of the year 0 to the 1st of January 1970.
const EPOCH: u64 = 719_468;

/// `2026-01-02T03:04:05Z`.
pub fn rfc3339(seconds: u64) -> String {
    let (of_day, mut left) = (seconds % DAY, seconds / DAY);
    let mut year = 1970;
    while left >= days(year + 1, 1, 1) - days(year, 1, 1) {
        left -= days(year + 1, 1, 1) - days(year, 1, 1);
        year += 1;
    }
    let day_of_year = days(year, 1, 1) + left;
    let starts = |month: &u64| days(year, *month, 1) <= day_of_year;
    let month = (1..=12).rev().find(starts).unwrap_or(1);
    let day = day_of_year - days(year, month, 1) + 1;
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date() {
        // By `date -u -d @SECONDS`.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_795_366_800, "2026-11-22T17:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            let long = format!("{digits}Z");
            assert_eq!(time(GENERALIZED_TIME, long.as_bytes()), Some(seconds));
            if text < "2050" {
                assert_eq!(time(UTC_TIME, &long.as_bytes()[2..]), Some(seconds));
            }
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "Z",
            "260101000000",
            "2601010000Z",
            "261301000000Z",
            "260101240000Z",
            "2601010000000Z",
            "26010100000aZ",
        ] {
            assert_eq!(time(UTC_TIME, text.as_bytes()), None, "{text}");
        }
        assert_eq!(time(0x16, b"260101000000Z"), None);
    }

    #[test]
    fn a_certificate_says_when_it_ends_and_any_cut_of_it_is_refused() {
        let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 31);
        params.not_after = rcgen::date_time_ymd(2051, 2, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let made = params.self_signed(&key).unwrap();
        let validity = Validity::of(made.der()).unwrap();
        assert_eq!(rfc3339(validity.from), "2026-01-31T00:00:00Z");
        assert_eq!(rfc3339(validity.until), "2051-02-01T00:00:00Z");
        for cut in 0..made.der().len() {
            assert_eq!(Validity::of(&made.der()[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn it_is_due_after_two_thirds() {
        let validity = Validity { from: 1_000, until: 1_900 };
        assert!(!validity.is_due(0) && !validity.is_due(1_599));
        assert!(validity.is_due(1_600) && validity.is_due(5_000));
    }
}
