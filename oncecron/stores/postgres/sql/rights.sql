-- The last part of the schema, and of an upgrade: nobody has a right that `init` does not give.
revoke all on schema {ns} from public;
revoke all on all tables in schema {ns} from public;
revoke all on all functions in schema {ns} from public;
