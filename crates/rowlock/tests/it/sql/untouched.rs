//! Completing jobs that are as their claim left them, by place and transaction; and all that may have happened to them since.

use std::time::Instant;

use tokio_postgres::Client as Pg;

use super::kit::{
    Held, Installed, PATIENCE, enqueue, installed, named, number, one, rows, run, tids,
};

/// A claim of the library's form, from a queue without history: what it brought in the order of the places, and its mark.
async fn claim_marked(pg: &Pg, n: usize, token: i64) -> (Vec<Held>, i64) {
    let sql = format!(
        "select id, tid, payload ->> 'mark' from rowlock.claim_batch('{{default}}', '{{{n}}}', {n}, 0, {token}) order by tid"
    );
    let mut jobs = Vec::new();
    let mut mark = 0;
    for row in rows(pg, &sql).await {
        let cells: Vec<&str> = row.split('|').collect();
        match cells[0].parse() {
            Ok(id) => jobs.push(Held {
                id,
                token,
                attempt: 1,
                tid: cells[1].to_owned(),
            }),
            Err(_) => mark = cells[2].parse().expect("a mark"),
        }
    }
    assert_eq!(jobs.len(), n, "that many are there");
    (jobs, mark)
}

const DONE_LOST_BUSY: &str = "array(select unnest(done) order by 1), array(select unnest(lost) order by 1), array(select unnest(busy) order by 1)";

/// The call that completes jobs of which the caller says that nobody has touched them.
fn untouched(runs: &[(&[Held], i64)]) -> String {
    let all: Vec<Held> = runs.iter().flat_map(|r| r.0.to_vec()).collect();
    let joined = |numbers: Vec<i64>| {
        let texts: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        texts.join(",")
    };
    format!(
        "select rowlock.complete_untouched('default', {}::tid[], '{{{}}}', '{{{}}}', '{{{}}}')",
        tids(&all),
        joined(runs.iter().map(|r| r.0.len() as i64).collect()),
        joined(runs.iter().map(|r| r.0[0].token).collect()),
        joined(runs.iter().map(|r| r.1).collect()),
    )
}

/// Completes them as a worker does: by their ids where the fast way does not do.
async fn complete_marked(pg: &Pg, runs: &[(&[Held], i64)]) -> String {
    let all: Vec<Held> = runs.iter().flat_map(|r| r.0.to_vec()).collect();
    if one(pg, &untouched(runs)).await == "t" {
        return format!("{}|{{}}|{{}}", list(&all));
    }
    let by_id = format!(
        "select {DONE_LOST_BUSY} from rowlock.complete_batch({})",
        named(&all)
    );
    one(pg, &by_id).await
}

async fn without_history(jobs: usize) -> Installed {
    let own = installed().await;
    run(
        &own.pg,
        "select rowlock.set_queue('default', '{\"retention\": \"0\"}')",
    )
    .await;
    enqueue(&own.pg, jobs).await;
    own
}

fn list(jobs: &[Held]) -> String {
    let ids: Vec<String> = jobs.iter().map(|j| j.id.to_string()).collect();
    format!("{{{}}}", ids.join(","))
}

#[tokio::test]
async fn jobs_that_nobody_has_touched_are_done_by_place_and_transaction() {
    let own = without_history(7).await;
    let pg = &own.pg;
    let (first, mark) = claim_marked(pg, 3, 71).await;
    let (second, other) = claim_marked(pg, 2, 72).await;
    assert_ne!(mark, other, "each claim has its own");
    let both: [(&[Held], i64); 2] = [(&first[..2], mark), (&second, other)];
    run(pg, "begin").await;
    assert_eq!(
        one(pg, &untouched(&both)).await,
        "t",
        "they are known by their marks"
    );
    run(pg, "rollback").await;
    let said = complete_marked(pg, &both).await;
    assert_eq!(
        said,
        format!(
            "{}|{{}}|{{}}",
            list(&[&first[..2], &second[..]].concat()[..])
        )
    );
    assert_eq!(
        rows(
            pg,
            "select id from rowlock.job where token <> 0 order by id"
        )
        .await,
        [first[2].id.to_string()],
        "the third was not named"
    );
    // It is said again after a broken connection, and changes nothing.
    let said = complete_marked(pg, &[(&first[..2], mark)]).await;
    assert_eq!(said, format!("{{}}|{}|{{}}", list(&first[..2])));
}

#[tokio::test]
async fn what_was_touched_since_the_claim_is_done_all_the_same_or_answered_one_by_one() {
    let own = without_history(6).await;
    let (pg, other) = (&own.pg, own.another().await);
    let (jobs, mark) = claim_marked(pg, 6, 71).await;

    // The lease of one was renewed.
    run(pg, &format!("select rowlock.extend({})", named(&jobs[..1]))).await;
    let said = complete_marked(pg, &[(&jobs[..2], mark)]).await;
    assert!(
        said.ends_with("|{}|{}"),
        "both are done, whoever moved: {said}"
    );
    assert_eq!(number(pg, "select count(*) from rowlock.job").await, 4);

    // Somebody has locked one.
    let lock = format!(
        "begin; select from rowlock.job where id = {} for update",
        jobs[2].id
    );
    run(&other, &lock).await;
    let said = complete_marked(pg, &[(&jobs[2..4], mark)]).await;
    assert_eq!(
        said,
        format!("{}|{{}}|{}", list(&jobs[3..4]), list(&jobs[2..3])),
        "the other one does not wait for it"
    );
    run(&other, "rollback").await;

    // Another has the job by now.
    run(
        pg,
        &format!("update rowlock.job set token = 5 where id = {}", jobs[4].id),
    )
    .await;
    let said = complete_marked(pg, &[(&jobs[4..], mark)]).await;
    assert_eq!(
        said,
        format!("{}|{}|{{}}", list(&jobs[5..]), list(&jobs[4..5]))
    );
}

/// After a rewrite of the table another row of the same claim, with the same token and transaction, is in the place of the first.
#[tokio::test]
async fn a_rewritten_table_is_not_taken_for_what_the_claim_has_written() {
    let own = without_history(8).await;
    let pg = &own.pg;
    // The places of these are free when the others are claimed, who move into them; unless the server just looks at what to vacuum itself.
    let (before, mark) = claim_marked(pg, 4, 70).await;
    complete_marked(pg, &[(&before, mark)]).await;
    let mut token = 71;
    let (jobs, mark) = loop {
        run(pg, "vacuum rowlock.job").await;
        let (jobs, mark) = claim_marked(pg, 4, token).await;
        if jobs[0].tid == "(0,1)" {
            break (jobs, mark);
        }
        assert!(token < 200, "vacuum leaves the places of finished jobs");
        let release = format!("select rowlock.release({})", named(&jobs));
        run(pg, &release).await;
        token += 1;
    };
    assert_eq!(
        complete_marked(pg, &[(&jobs[..1], mark)]).await,
        format!("{}|{{}}|{{}}", list(&jobs[..1]))
    );
    let in_its_place = format!("select id from rowlock.job where ctid = '{}'", jobs[1].tid);
    let began = Instant::now();
    loop {
        run(pg, "vacuum full rowlock.job").await;
        if number(pg, &in_its_place).await == jobs[2].id {
            break;
        }
        // What is finished is kept while the server itself looks at the table, which may take a while.
        assert!(began.elapsed() < PATIENCE, "no row is where another was");
    }
    for job in &jobs[1..] {
        let job = std::slice::from_ref(job);
        assert_eq!(
            complete_marked(pg, &[(job, mark)]).await,
            format!("{}|{{}}|{{}}", list(job))
        );
        let left = format!("select count(*) from rowlock.job where id = {}", job[0].id);
        assert_eq!(number(pg, &left).await, 0, "this one is done, no other");
    }
}

/// Numbers that do not add up are refused, and what they do not fit is left alone.
#[tokio::test]
async fn runs_that_are_wrong_are_not_believed() {
    let own = without_history(3).await;
    let pg = &own.pg;
    let (jobs, mark) = claim_marked(pg, 3, 71).await;
    for (runs, tokens, marks, refused) in [
        ("{1}", "{71}", "{MARK}", true),
        ("{3}", "{71}", "{MARK}", true),
        ("{2,1}", "{71,71}", "{MARK,MARK}", true),
        ("{-1,3}", "{71,71}", "{MARK,MARK}", true),
        ("{2,0}", "{71,71}", "{MARK,MARK}", true),
        ("{2}", "{71}", "{}", true),
        ("{2}", "{}", "{MARK}", true),
        ("{}", "{}", "{}", true),
        ("{2}", "{71}", "{1}", false),
        ("{2}", "{71}", "{null}", false),
        ("{2}", "{null}", "{MARK}", false),
        ("{2}", "{72}", "{MARK}", false),
        ("{2,null}", "{71,71}", "{MARK,MARK}", false),
    ] {
        let call = format!(
            "select rowlock.complete_untouched('default', {}::tid[], '{runs}', '{tokens}', '{}')",
            tids(&jobs[..2]),
            marks.replace("MARK", &mark.to_string())
        );
        let case = format!("{runs} {tokens} {marks}");
        if refused {
            let error = pg.simple_query(&call).await.expect_err(&case);
            let error = error.as_db_error().expect("of the database");
            assert_eq!(error.code().code(), "22023", "{case}: {error}");
        } else {
            assert_eq!(one(pg, &call).await, "f", "{case}");
        }
        let left = number(pg, "select count(*) from rowlock.job").await;
        assert_eq!(left, 3, "{case}");
    }
}

#[tokio::test]
async fn where_a_history_is_kept_nothing_is_just_deleted() {
    let own = without_history(3).await;
    let pg = &own.pg;
    let (jobs, mark) = claim_marked(pg, 2, 71).await;
    run(
        pg,
        "select rowlock.set_queue('default', '{\"retention\": \"1 day\"}')",
    )
    .await;
    assert_eq!(one(pg, &untouched(&[(&jobs, mark)])).await, "f");
    let ended = "select payload -> 'mark' from rowlock.claim_batch('{default}', '{1}', 1, 0, 72) where id is null";
    assert_eq!(
        one(pg, ended).await,
        "null",
        "a worker need not try in vain"
    );
    assert_eq!(
        complete_marked(pg, &[(&jobs, mark)]).await,
        format!("{}|{{}}|{{}}", list(&jobs))
    );
    assert_eq!(number(pg, "select count(*) from rowlock.finished").await, 2);
}
