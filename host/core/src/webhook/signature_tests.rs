//! Signatures beside another implementation's, and secrets over rotations: repeats, expiry, bounds.

use super::*;

fn secret(bytes: &[u8]) -> WebhookSecret {
    format!("{PREFIX}{}", STANDARD.encode(bytes)).try_into().unwrap()
}

#[test]
fn signatures_are_those_of_another_implementation() {
    // Computed with Python's modules `hmac` and `base64`.
    let secret = secret(b"0123456789abcdefghijklmnopqrstuv");
    let signature = secret.sign("msg_1", 1_700_000_000, br#"{"id":"1"}"#);
    assert_eq!(signature, "v1,ZpKFzDKR42bFRnDOTV1XUTVz0PasuCXqg+jEuq/44g0=");
}

#[test]
fn after_a_rotation_both_secrets_sign_for_a_day() {
    let old = WebhookSecrets::generate();
    let now = Timestamp::from_millis(5_000);
    let new = old.clone().rotated(now);
    assert_ne!(old.current(), new.current());
    let both = new.sign("m", now, b"{}");
    let (newest, previous) = both.split_once(' ').unwrap();
    assert_eq!(previous, old.sign("m", now, b"{}"));
    assert_eq!(newest, new.current().sign("m", 5, b"{}"));
    let later = now.plus_millis(PREVIOUS_VALID_MS);
    assert!(!new.sign("m", later, b"{}").contains(' '));
}

/// The answer of a rotation may be lost, so that the caller repeats it: the receivers know the
/// secret before both.
#[test]
fn a_repeated_rotation_keeps_the_secret_that_receivers_know() {
    let known = WebhookSecrets::generate();
    let now = Timestamp::from_millis(5_000);
    let lost = known.clone().rotated(now);
    let repeated = lost.clone().rotated(now);
    let expected = [&repeated, &lost, &known].map(|secrets| newest(secrets, now));
    assert_eq!(repeated.sign("m", now, b"{}"), expected.join(" "));
}

#[test]
fn previous_secrets_expire_and_are_bounded_and_the_oldest_valid_ones_stay() {
    const HOUR_MS: u64 = 60 * 60 * 1_000;
    // The hours of the rotations, the hour of a webhook, and the secrets that sign it, by the
    // number of rotations before them.
    let cases: [(&[u64], u64, &[usize]); 8] = [
        (&[], 0, &[0]),
        (&[0, 0, 0], 1, &[3, 2, 1, 0]),
        (&[0, 0, 0, 0], 1, &[4, 3, 2, 1, 0]),
        (&[0, 0, 0, 0, 0], 1, &[5, 4, 2, 1, 0]),
        (&[0, 0, 0, 0, 0, 0], 1, &[6, 5, 2, 1, 0]),
        (&[0, 10], 23, &[2, 1, 0]),
        (&[0, 10], 24, &[2, 1]),
        // Secrets that have expired leave their places to others.
        (&[0, 1, 2, 3, 25, 25], 26, &[6, 5, 4, 3]),
    ];
    let start = Timestamp::from_millis(1_000_000);
    let at = |hour: u64| start.plus_millis(hour * HOUR_MS);
    for (rotations, hour, expected) in cases {
        let mut secrets = vec![WebhookSecrets::generate()];
        for rotation in rotations {
            let last = secrets.last().unwrap().clone();
            secrets.push(last.rotated(at(*rotation)));
        }
        let last = secrets.last().unwrap();
        assert!(last.previous.len() <= PREVIOUS_MAX, "{rotations:?}");
        let now = at(hour);
        let expected: Vec<_> =
            expected.iter().map(|number| newest(&secrets[*number], now)).collect();
        let signatures = last.sign("m", now, b"{}");
        assert_eq!(signatures, expected.join(" "), "{rotations:?}, hour {hour}");
        let stored = serde_json::to_string(last).unwrap();
        assert_eq!(serde_json::from_str::<WebhookSecrets>(&stored).unwrap(), *last);
    }
}

/// The signature of a webhook of this time with the newest secret alone.
fn newest(secrets: &WebhookSecrets, now: Timestamp) -> String {
    secrets.current().sign("m", now.as_millis() / 1_000, b"{}")
}

#[test]
fn secrets_survive_text_and_are_not_shown_by_accident() {
    let secret = WebhookSecret::generate();
    assert_eq!(WebhookSecret::try_from(secret.reveal()), Ok(secret.clone()));
    assert_eq!(format!("{secret:?}"), "WebhookSecret(redacted)");
    for wrong in ["", "whsec_", "whsec_AAAA", "whsec_%"] {
        assert_eq!(WebhookSecret::try_from(wrong.to_owned()), Err(InvalidWebhookSecret));
    }
}
