-- What each role may do with items; see grants.sql.

-- name: run
grant execute on function {ns}.load_items_v1, {ns}.draw_v1, {ns}.progress_v1 to {role};

-- name: read
grant select on {ns}.item_lists, {ns}.items to {role};

-- name: operate
grant select on {ns}.item_lists, {ns}.items to {role};
grant execute on function {ns}.mend_items_v1 to {role};
