//! Reads the validity period of X.509 certificates.
//!
//! rustls verifies certificates but does not report when they expire. This module reads the two dates with the crates
//! yasna and `time`, which are already dependencies of rcgen.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokengauge_types::clock;
use yasna::models::{GeneralizedTime, UTCTime};
use yasna::tags::TAG_UTCTIME;
use yasna::{ASN1Result, BERReader, BERReaderSeq, Tag};

/// The period in which a certificate is valid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Validity {
    pub not_before: OffsetDateTime,
    pub not_after: OffsetDateTime,
}

impl Validity {
    /// Reads the validity of a DER-encoded certificate (RFC 5280, section 4.1).
    pub fn from_der(certificate: &[u8]) -> Option<Self> {
        let validity = yasna::parse_der(certificate, |reader| {
            reader.read_sequence(|certificate| {
                let validity = certificate.next().read_sequence(read_tbs_certificate)?;
                skip_rest(certificate)?;
                Ok(validity)
            })
        });
        validity.ok()
    }

    /// Returns whether two thirds of the validity period have passed. cert-manager also renews certificates at this
    /// point.
    pub fn is_renewal_due(&self, now: OffsetDateTime) -> bool {
        now >= self.not_after - (self.not_after - self.not_before) / 3
    }
}

fn read_tbs_certificate(fields: &mut BERReaderSeq<'_, '_>) -> ASN1Result<Validity> {
    fields.read_optional(|version| version.read_tagged(Tag::context(0), |it| it.read_der()))?;
    for _field in ["serialNumber", "signature", "issuer"] {
        fields.next().read_der()?;
    }
    let validity = fields.next().read_sequence(|validity| {
        let not_before = read_time(validity.next())?;
        let not_after = read_time(validity.next())?;
        Ok(Validity { not_before, not_after })
    })?;
    skip_rest(fields)?;
    Ok(validity)
}

fn read_time(time: BERReader<'_, '_>) -> ASN1Result<OffsetDateTime> {
    if time.lookahead_tag()? == TAG_UTCTIME {
        time.read_utctime().as_ref().map(UTCTime::datetime).copied().map_err(|error| *error)
    } else {
        let time = time.read_generalized_time();
        time.as_ref().map(GeneralizedTime::datetime).copied().map_err(|error| *error)
    }
}

/// Skips the rest of an ASN.1 sequence. Without this call, yasna reports an error because the sequence was not read to
/// its end.
fn skip_rest(fields: &mut BERReaderSeq<'_, '_>) -> ASN1Result<()> {
    while fields.read_optional(|field| field.read_der())?.is_some() {}
    Ok(())
}

/// Returns the current time, truncated to full seconds.
pub fn now() -> OffsetDateTime {
    let now = OffsetDateTime::from(clock::wall_now().system_time());
    now.replace_nanosecond(0).unwrap_or(now)
}

/// Formats a time as RFC 3339, such as `2026-01-02T03:04:05Z`.
pub fn rfc3339(time: OffsetDateTime) -> String {
    time.format(&Rfc3339).unwrap_or_else(|_| time.unix_timestamp().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(seconds).unwrap()
    }

    #[test]
    fn reads_both_time_formats_and_rejects_every_truncation() {
        let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 31);
        // Dates from 2050 on are encoded as GeneralizedTime, earlier dates as UTCTime.
        params.not_after = rcgen::date_time_ymd(2051, 2, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let validity = Validity::from_der(certificate.der()).unwrap();
        assert_eq!(rfc3339(validity.not_before), "2026-01-31T00:00:00Z");
        assert_eq!(rfc3339(validity.not_after), "2051-02-01T00:00:00Z");
        for length in 0..certificate.der().len() {
            assert_eq!(Validity::from_der(&certificate.der()[..length]), None, "{length}");
        }
    }

    #[test]
    fn formats_whole_seconds() {
        assert_eq!(rfc3339(at(1_795_366_800)), "2026-11-22T17:00:00Z");
        assert_eq!(now().nanosecond(), 0);
    }

    #[test]
    fn renewal_is_due_after_two_thirds() {
        let validity = Validity { not_before: at(1_000), not_after: at(1_900) };
        assert!(!validity.is_renewal_due(at(0)) && !validity.is_renewal_due(at(1_599)));
        assert!(validity.is_renewal_due(at(1_600)) && validity.is_renewal_due(at(5_000)));
    }
}
