module sealedsessions

go 1.23
