select {what} from {table} as t where {eligible} order by {ordered} limit %(most)s for {lock} skip locked
