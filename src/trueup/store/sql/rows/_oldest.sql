select {what} from {table} as t where {eligible} {ordered} limit %(most)s for {lock} skip locked
