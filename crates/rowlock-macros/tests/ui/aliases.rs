use rowlock::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", alias = "a")]
struct Itself {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", alias = "b", aliases("c", "b"))]
struct Twice {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", alias("b"))]
struct List {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", aliases = "b")]
struct Value {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", aliases("b", ""))]
struct Empty {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", aliases())]
struct None {}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "a", aliases("b" "c"))]
struct NoComma {}

fn main() {}
