//! Whether the server lets as many connections in as will be needed.

use super::{CLIENT, EACH_WORKER, OTHERS, Stage};

/// What is left of the limits of the server, of the role and of the database. Sessions of others can be counted, but not always seen.
const ROOM: &str = "
select least(
         current_setting('max_connections')::bigint - (select coalesce(sum(numbackends), 0) from pg_stat_database)
           - case when r.rolsuper then 0
                  else current_setting('superuser_reserved_connections')::bigint
                     + coalesce(nullif(current_setting('reserved_connections', true), '')::bigint, 0) end,
         case when r.rolconnlimit >= 0 and not r.rolsuper
              then r.rolconnlimit - (select count(*) from pg_stat_activity a where a.usesysid = r.oid) end,
         case when d.datconnlimit >= 0 and not r.rolsuper
              then d.datconnlimit - (select s.numbackends from pg_stat_database s where s.datid = d.oid) end)::bigint
  from pg_roles r, pg_database d
 where r.rolname = current_user and d.datname = current_database()";

impl Stage {
    /// Fails unless so many workers can connect; `option`: where fewer can be asked for.
    pub(in crate::bench) async fn has_room_for(
        &self,
        workers: usize,
        option: &str,
    ) -> anyhow::Result<()> {
        let who = format!("{workers} workers");
        self.has_room(workers * EACH_WORKER + OTHERS, &who, Some(option))
            .await
    }

    /// As [`has_room_for`](Self::has_room_for), for other connections beside the client and a worker.
    pub(in crate::bench) async fn has_room_beside(
        &self,
        connections: usize,
        who: &str,
        option: Option<&str>,
    ) -> anyhow::Result<()> {
        let all = connections + CLIENT + EACH_WORKER + OTHERS;
        self.has_room(all, who, option).await
    }

    /// Fails unless so many more connections can be made, which `who` may need; `instead`: what can be said to need fewer.
    async fn has_room(
        &self,
        connections: usize,
        who: &str,
        instead: Option<&str>,
    ) -> anyhow::Result<()> {
        let room = usize::try_from(self.count(ROOM).await?).unwrap_or(0);
        let instead = instead.map_or(String::new(), |option| format!("say fewer {option}, or "));
        anyhow::ensure!(
            room >= connections,
            "the server has room for {room} more connections, and {who} may need {connections}: {instead}raise max_connections"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rowlock_testkit::TestDb;

    use super::*;

    #[tokio::test]
    async fn too_few_connections_are_noticed() {
        let db = TestDb::new().await.unwrap();
        let stage = Stage::of_test(&db).await;
        stage.has_room_beside(1, "a scenario", None).await.unwrap();
        let many = stage.has_room_beside(50_000, "50,000 producers", Some("--producers"));
        let said = many.await.unwrap_err().to_string();
        assert!(
            said.contains(
                "50,000 producers may need 50026: say fewer --producers, or raise max_connections"
            ),
            "{said}"
        );
        stage.take_down().await.unwrap();
    }
}
