use rowlock::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", queue = "")]
struct NoQueue {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", queue = 7)]
struct Number {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", tags("fine", "a\tb"))]
struct ControlCharacter {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", tags(1, "b"))]
struct NoText {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", tags = ["a", "b"])]
struct Array {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", tags(
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b", "c", "d", "e", "f", "g",
    "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", "u", "v", "w",
))]
struct TooMany {}

fn main() {}
