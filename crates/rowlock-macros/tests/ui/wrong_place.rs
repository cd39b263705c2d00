use rowlock::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a")]
struct OnAField {
    #[job(queue = "mail")]
    id: i64,
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a")]
enum OnAVariant {
    #[job(queue = "mail")]
    Sent { id: i64 },
}

fn main() {}
