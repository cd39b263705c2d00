use rowlock::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", timeout = "30")]
struct NoUnit {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", timeout = 30)]
struct Number {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", timeout = "1 week")]
struct UnknownUnit {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", timeout = "30s1m")]
struct WrongOrder {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", timeout = "")]
struct Empty {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", timeout = "0ms")]
struct TooShort {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", timeout = "31d")]
struct TooLong {}

fn main() {}
