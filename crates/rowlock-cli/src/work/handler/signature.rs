//! The signature of a request, by which the endpoint knows that it is ours: the scheme of Standard Webhooks, for which there are libraries
//! in most languages. HMAC-SHA256 over `id.timestamp.body`, so that neither the body nor the time can be changed. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A key to sign with.
#[derive(Clone)]
pub(super) struct Signer(Hmac<Sha256>);

impl Signer {
    /// A secret as the scheme writes it (`whsec_` and base64), or any other text, whose bytes are the key.
    pub(super) fn new(secret: &str) -> Result<Self, String> {
        let key = match secret.strip_prefix("whsec_") {
            Some(encoded) => STANDARD.decode(encoded).map_err(|_| {
                "the secret begins with whsec_, but what follows is no base64".to_owned()
            })?,
            None => secret.as_bytes().to_vec(),
        };
        Hmac::new_from_slice(&key)
            .map(Self)
            .map_err(|e| format!("the secret cannot be used: {e}"))
    }

    /// The value of the header `webhook-signature`.
    pub(super) fn sign(&self, id: &str, timestamp: i64, body: &str) -> String {
        let mut mac = self.0.clone();
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body.as_bytes());
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_scheme() {
        let signer = Signer::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signed = signer.sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            "{\"test\": 2432232314}",
        );
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_plain_secret_is_its_bytes_and_a_broken_one_is_refused() {
        let plain = Signer::new("hello").unwrap().sign("1", 2, "{}");
        let encoded = Signer::new("whsec_aGVsbG8=").unwrap().sign("1", 2, "{}");
        assert_eq!(plain, encoded);
        assert!(Signer::new("whsec_!").is_err());
    }
}
